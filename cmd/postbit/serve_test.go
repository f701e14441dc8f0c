package main

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/minimongo"
	"postbit/internal/track"
)

// The web side starts while the database is away, answers, and counts later.
func TestTheWebSideNeedsNoDatabaseToAnswer(t *testing.T) {
	s := newShell(t)
	probe, err := net.Listen("tcp", "127.0.0.1:0") // an address that nobody listens on, until later
	if err != nil {
		t.Fatal(err)
	}
	addr := probe.Addr().String()
	_ = probe.Close()
	secret := "k1:" + strings.Repeat("QUFB", 16)
	for name, value := range map[string]string{
		"MONGO_URI": "mongodb://" + addr + "/app?serverSelectionTimeoutMS=100&directConnection=true", "REDIS_URI": "redis://" + miniredis.RunT(t).Addr(),
		"SMTP_URL": "outbox:out", "PUBLIC_URL": "https://mail.example.com", "SECRET": secret, "DATA_DIR": "data",
	} {
		t.Setenv("POSTBIT_"+name, value)
	}
	s.refuses(exitFailed, []string{"MongoDB does not answer"}, "serve", "--roles", "worker")

	stop := s.serve("--roles", "web")
	s.await("it says what it waits for", func() bool { return strings.Contains(s.talk.String(), "all else waits") })
	keys, err := track.ParseKeys(secret)
	if err != nil {
		t.Fatal(err)
	}
	urls, err := track.NewURLs("http://"+s.public(), keys)
	if err != nil {
		t.Fatal(err)
	}
	_, id, err := bson.MarshalValue(int64(7))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(urls.Pixel([8]byte{1}, bson.RawValue{Type: bson.TypeInt64, Value: id}, s.clk.Now()))
	if err != nil {
		t.Fatal(err)
	}
	gif, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if err != nil || resp.StatusCode != 200 || len(gif) != 43 {
		t.Errorf("status %s, %d bytes, %v", resp.Status, len(gif), err)
	}
	if r := stop(); r.code != 0 {
		t.Errorf("serve: exit code %d\n%s", r.code, r.err)
	}

	m, err := minimongo.Open(minimongo.Config{Now: s.clk.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	if _, err := m.Listen("tcp", addr); err != nil {
		t.Fatal(err)
	}
	t.Setenv("POSTBIT_MONGO_URI", "mongodb://"+addr+"/app?directConnection=true") // now it is there, however slow the machine
	s.serve("--roles", "worker,web")                                              // over the same data directory
	s.await("the hit is counted", func() bool { return strings.Contains(s.must("report", "all", "--json"), `"hits":1,`) })
}

// A process without the web side has metrics and health, and no API.
func TestMetricsOfAWorker(t *testing.T) {
	s := newShell(t)
	s.external(t)
	s.serve("--roles", "worker", "--metrics-listen", "127.0.0.1:0")
	admin := s.address("admin")
	for path, want := range map[string]string{"/healthz": "ok", "/metrics": "postbit_hits_counted_total 0", "/readyz": `"mongo":"ok"`, "/api/campaigns": "role web"} {
		s.await(path, func() bool {
			resp, err := http.Get("http://" + admin + path)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			return err == nil && strings.Contains(string(text), want)
		})
	}
	http.DefaultClient.CloseIdleConnections()
}
