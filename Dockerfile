# postbit as one static binary, in an image that holds nothing else but the certificates it trusts.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /out/postbit ./cmd/postbit \
 && mkdir -p /out/data && chown 65532:65532 /out/data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/postbit /postbit
# A named volume mounted here takes over the owner of the folder: the spool must be writable without root.
COPY --from=build --chown=65532:65532 /out/data /data
ENV POSTBIT_DATA_DIR=/data
USER 65532:65532
EXPOSE 8080 8081
ENTRYPOINT ["/postbit"]
CMD ["serve"]
