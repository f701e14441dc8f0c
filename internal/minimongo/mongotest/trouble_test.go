package mongotest_test

import (
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/internal/minimongo/mongotest"
)

// A step meets the trouble at the command that it is meant for, is taken until it succeeds, and has another one beside it where it is held up.
func TestEveryTroubleIsMet(t *testing.T) {
	for way, x := range mongotest.Troubles {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			srv, db := mongotest.Server(t)
			write := func(name string) func() error {
				return func() error {
					_, err := db.Collection("c").UpdateByID(t.Context(), name, bson.D{{Key: "$set", Value: bson.D{{Key: "there", Value: true}}}}, options.UpdateOne().SetUpsert(true))
					return err
				}
			}
			if err := write("before")(); err != nil { // counts as none
				t.Fatal(err)
			}
			trouble := x.Inject(srv, 2, nil)
			others := 0
			other := func() error { others++; return write("other")() }
			trouble.Step(t, write("first"), other)
			if others > 0 {
				t.Error("held up too early")
			}
			trouble.Step(t, write("second"), other)
			if held := strings.Contains(way, "held up"); held != (others == 1) {
				t.Errorf("%d others", others)
			}
			if !trouble.Over() {
				t.Error("no trouble")
			}
			n, err := db.Collection("c").CountDocuments(t.Context(), bson.D{})
			if want := int64(3 + others); n != want || err != nil {
				t.Errorf("%d documents, want %d, %v", n, want, err)
			}
		})
	}
}

func TestNoTroubleIsNone(t *testing.T) {
	srv, db := mongotest.Server(t)
	var said mongotest.Commands
	trouble := mongotest.Trouble{}.Inject(srv, 0, said.Count)
	step := func() error {
		_, err := db.Collection("c").InsertOne(t.Context(), bson.D{})
		return err
	}
	trouble.Step(t, step, nil)
	if err := step(); err != nil { // outside of a step
		t.Fatal(err)
	}
	if trouble.Over() || said.Times()["insert"] != 1 {
		t.Errorf("%v", said.Times())
	}
}
