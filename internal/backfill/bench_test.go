package backfill

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/minimongo/mongotest"
)

const (
	benchRows      = 150_000
	benchUsers     = 100_000
	benchTemplates = 148
)

// BenchmarkRead reads a log from its first byte to the fingerprint. csv/row is what a row costs in rows of encoding/csv alone over a log by id of
// the same length, measured in the same run: that ratio stays comparable from machine to machine, where rows/s does not.
func BenchmarkRead(b *testing.B) {
	store := open(b, mongotest.DB(b)).o.Users // without a user: an email stands for nobody
	bits := map[string]int{}
	for i := range benchTemplates {
		bits["t"+strconv.Itoa(i)] = i
	}
	names, err := NewNames(bits)
	if err != nil {
		b.Fatal(err)
	}
	o := Options{Users: store, Names: names, Now: now}
	byID := benchLog(oidOf, csvLine)
	for _, c := range []struct {
		name string
		log  []byte
	}{
		{"id", byID},
		{"email", benchLog(emailOf, csvLine)},
		{"json", benchLog(oidOf, jsonLine)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			src := &File{Name: "log", Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(c.log)), nil },
				Columns: Columns{User: "user", Template: "template", SentAt: "sent_at"}}
			var bare time.Duration
			for b.Loop() {
				l, err := Read(b.Context(), src, o)
				if err != nil {
					b.Fatal(err)
				}
				if l.Counts.Rows != benchRows || l.Counts.BadDates > 0 {
					b.Fatalf("%+v", l.Counts)
				}
				if err := l.Close(); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				bare += bareCSV(b, byID)
				b.StartTimer()
			}
			b.ReportMetric(float64(b.N)*benchRows/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(b.Elapsed().Seconds()/bare.Seconds(), "csv/row")
		})
	}
}

// bareCSV is how long encoding/csv takes to read a text.
func bareCSV(b *testing.B, text []byte) time.Duration {
	start := time.Now()
	r := csv.NewReader(bytes.NewReader(text))
	r.ReuseRecord = true
	for {
		switch _, err := r.Read(); {
		case errors.Is(err, io.EOF):
			return time.Since(start)
		case err != nil:
			b.Fatal(err)
		}
	}
}

func oidOf(i int) string {
	var oid bson.ObjectID
	copy(oid[:], fmt.Sprintf("%012d", i))
	return oid.Hex()
}

func emailOf(i int) string { return "user" + strconv.Itoa(i) + "@example.com" }

func csvLine(to []byte, user, template, at string) []byte {
	if len(to) == 0 {
		to = append(to, "user,template,sent_at\n"...)
	}
	return fmt.Appendf(to, "%s,%s,%s\n", user, template, at)
}

func jsonLine(to []byte, user, template, at string) []byte {
	return fmt.Appendf(to, `{"user":{"$oid":%q},"template":%q,"sent_at":{"$date":%q}}`+"\n", user, template, at)
}

// benchLog makes a log in the order of time, as logs are.
func benchLog(user func(int) string, line func(to []byte, user, template, at string) []byte) (log []byte) {
	r := rand.New(rand.NewPCG(1, 2))
	start := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	for n := range benchRows {
		at := start.Add(time.Duration(n) * 30 * time.Second)
		log = line(log, user(r.IntN(benchUsers)), "t"+strconv.Itoa(r.IntN(benchTemplates)), at.Format(time.RFC3339))
	}
	return log
}
