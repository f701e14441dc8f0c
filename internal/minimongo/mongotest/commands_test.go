package mongotest_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/minimongo/mongotest"
)

// verdict is a test that counts how often it was failed.
type verdict struct {
	testing.TB
	faults int
}

func (v *verdict) Helper()             {}
func (v *verdict) Logf(string, ...any) {}
func (v *verdict) Errorf(string, ...any) {
	v.faults++
}

func TestCommandsAreThoseOfTheList(t *testing.T) {
	command := func(name, collection string) bson.Raw {
		raw, err := bson.Marshal(bson.D{{Key: name, Value: collection}, {Key: "$db", Value: "x"}})
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	var said mongotest.Commands
	for _, c := range []bson.Raw{command("find", "runs"), command("find", "users"), command("update", "runs"), command("find", "runs")} {
		said.Count(c)
	}
	if d := cmp.Diff(map[string]int{"find": 3, "update": 1}, said.Times()); d != "" {
		t.Error(d)
	}
	for _, c := range []struct {
		name   string
		listed []string
		faults int
	}{
		{"all", []string{"find runs", "find users", "update runs"}, 0},
		{"one that is not listed", []string{"find runs", "update runs"}, 1},
		{"one that was not said", []string{"find runs", "find users", "update runs", "insert runs"}, 1},
		{"one for another", []string{"find runs", "find users", "delete runs"}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, listed := &verdict{}, map[string]string{}
			for _, kind := range c.listed {
				listed[kind] = "needed"
			}
			if said.Expect(v, listed); v.faults != c.faults {
				t.Errorf("%d faults", v.faults)
			}
		})
	}
}
