package hello_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"postbit/internal/hello"
	"postbit/internal/minimongo"
	"postbit/internal/minimongo/mongotest"
)

func TestAsk(t *testing.T) {
	now := time.Date(2026, 12, 1, 9, 0, 0, 123_000_000, time.UTC)
	srv, db := mongotest.Server(t, func(c *minimongo.Config) { c.Now = func() time.Time { return now } })
	a, err := hello.Ask(t.Context(), db)
	if err != nil || !a.LocalTime.Equal(now) || a.Router() {
		t.Errorf("%+v, %v", a, err)
	}
	srv.Inject(minimongo.Fault{Command: "hello", Where: func(of string, _ bson.Raw) bool { return of == db.Name() },
		Before: minimongo.Action{Error: &minimongo.Error{Code: 13, Message: "not you"}}})
	if _, err := hello.Ask(t.Context(), db); !isRefusal(err) {
		t.Errorf("refused: %v", err)
	}
}

func isRefusal(err error) bool {
	se, ok := err.(mongo.ServerError)
	return ok && se.HasErrorCode(13)
}

// What servers of different kinds say, as their manuals have it.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		name   string
		reply  bson.D
		want   hello.Answer
		router bool
	}{
		{"a member of a replica set", bson.D{{Key: "setName", Value: "rs0"}, {Key: "isWritablePrimary", Value: true}, {Key: "ok", Value: 1}}, hello.Answer{SetName: "rs0"}, false},
		{"a router", bson.D{{Key: "msg", Value: "isdbgrid"}, {Key: "ok", Value: 1}}, hello.Answer{Msg: "isdbgrid"}, true},
		{"one that tells no time", bson.D{{Key: "ok", Value: 1}}, hello.Answer{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			data, err := bson.Marshal(c.reply)
			if err != nil {
				t.Fatal(err)
			}
			var a hello.Answer
			if err := bson.Unmarshal(data, &a); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, a); d != "" || a.Router() != c.router {
				t.Errorf("router: %v; %s", a.Router(), d)
			}
		})
	}
}
