package minimongo

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// open starts a server without a network.
func open(t testing.TB, cfg Config) *Server {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// run carries out a command in the database "db" as a connection would.
func (s *Server) run(cmd bson.D) (bson.Raw, error) {
	raw, err := bson.Marshal(cmd)
	if err != nil {
		return nil, err
	}
	dst, err := s.dispatch(&request{ctx: s.ctx, name: cmd[0].Key, db: "db", body: raw}, make([]byte, 4))
	if err != nil {
		return nil, err
	}
	dst = append(dst, 0)
	binary.LittleEndian.PutUint32(dst, uint32(len(dst)))
	return bson.Raw(dst), bson.Raw(dst).Validate()
}

// failer is what testing.TB and rapid.T have in common.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func (s *Server) must(t failer, cmd bson.D) bson.Raw {
	t.Helper()
	raw, err := s.run(cmd)
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	if errs, err := raw.LookupErr("writeErrors"); err == nil {
		t.Fatalf("%v: %v", cmd, errs)
	}
	return raw
}

// parse reads Extended JSON.
func parse(s string) bson.D {
	var d bson.D
	if err := bson.UnmarshalExtJSON([]byte(s), false, &d); err != nil {
		panic(s + ": " + err.Error())
	}
	return d
}

func codeOf(err error) int32 {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// insertAll writes documents in batches.
func (s *Server) insertAll(t testing.TB, coll string, docs []any) {
	t.Helper()
	for len(docs) > 0 {
		n := min(len(docs), 5000)
		s.must(t, bson.D{{Key: "insert", Value: coll}, {Key: "documents", Value: bson.A(docs[:n])}})
		docs = docs[n:]
	}
}

// BenchmarkDurable shows how writers share commits: each waits for the disk, together they wait once.
func BenchmarkDurable(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprint("writers=", writers), func(b *testing.B) {
			s := open(b, Config{Dir: b.TempDir()})
			var next atomic.Int64
			var wg sync.WaitGroup
			for range writers {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						if _, err := s.run(bson.D{{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: i}}}}}); err != nil {
							b.Error(err)
						}
					}
				}()
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
		})
	}
}
