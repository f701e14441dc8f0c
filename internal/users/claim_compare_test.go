package users

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"postbit/internal/bitfield"
	"postbit/internal/minimongo"
)

// await looks until ok holds. There is nothing to wait for: the server tells nobody that it has applied a command whose answer it holds
// back.
func await(t testing.TB, ok func() bool) {
	t.Helper()
	for !ok() {
		select {
		case <-t.Context().Done():
			t.Fatal("it never came about")
		case <-time.After(time.Millisecond):
		}
	}
}

// compareClaim against what has really happened: it may not know, but it is never wrong. It does know with at most one other claim
// since, and where ours would have set the bit and it is clear.
func TestCompareClaim(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := snapshot{readable: true}
		claimBy := func(run RunID, bit int) Claim {
			c := (&User{was: doc}).claim(bit, run, noon.Add(time.Duration(rapid.IntRange(-2, 2).Draw(t, "clock"))*time.Millisecond))
			doc.runs, doc.lastTime, doc.blob = [2]RunID{run, doc.runs[0]}, c.LastAt, bitfield.With(doc.blob, bit)
			return c
		}
		others := func(label string) (n int) {
			n = rapid.IntRange(0, 4).Draw(t, label)
			for i := range n {
				claimBy(RunID{label[0], byte(i)}, rapid.SampledFrom([]int{bit, 20, 21}).Draw(t, "bit"))
			}
			return n
		}
		others("earlier")
		was := doc
		ourClaim := (&User{was: was}).claim(bit, ours, noon)
		ourClaim.Before = bitfield.Has(was.blob, bit)
		before := others("before")
		applied := before == 0 && rapid.Bool().Draw(t, "applied")
		if applied {
			doc.runs, doc.lastTime, doc.blob = [2]RunID{ours, doc.runs[0]}, ourClaim.LastAt, bitfield.With(doc.blob, bit)
		}
		since := before + others("since")
		got := compareClaim(&was, &doc, &ourClaim)
		switch {
		case got == Claimed && !applied, got == Lost && applied, got == Gone:
			t.Fatalf("%s, but applied: %v", got, applied)
		case got == Unconfirmed && since <= 1:
			t.Fatalf("%d other claims since, and it is not known that applied: %v", since, applied)
		case got == Unconfirmed && !bitfield.Has(doc.blob, bit):
			t.Fatal("the bit is clear, and it is not known that the claim has failed")
		}
	})
}

// Several other runs claim the same users at the same time: the documents name the last two claims, so they don't tell who got there
// first. The bit does, unless the others are of our template; then the server's count does where it leaves nothing open.
func TestClaimAmongSeveralRivals(t *testing.T) {
	for _, c := range []struct {
		name   string
		before bool // the rivals are faster, for all
		mixed  bool // and for one of the two only
		bit    int  // theirs
		want   []ClaimState
	}{
		{"all of them were faster", true, false, 20, []ClaimState{Lost, Lost}},
		{"we were, and the others claimed since", false, false, 20, []ClaimState{Claimed, Claimed}},
		{"one of each: the bit says which", true, true, 20, []ClaimState{Lost, Claimed}},
		{"all of them were faster, with our template", true, false, bit, []ClaimState{Lost, Lost}},
		{"we were, and others of our template claimed since", false, false, bit, []ClaimState{Claimed, Claimed}},
		{"one of each, with our template: neither the bit nor the sum says which", true, true, bit, []ClaimState{Unconfirmed, Unconfirmed}},
	} {
		t.Run(c.name, func(t *testing.T) {
			server, f := openServer(t)
			f.insert(d("_id", 1), d("_id", 2))
			us := []User{f.get(1), f.get(2)}
			three := func(id any) {
				for _, run := range []RunID{rival, other, {'x'}} {
					f.claim(id, c.bit, run)
				}
			}
			if c.before {
				three(1)
				if !c.mixed {
					three(2)
				}
			}
			applied, answer := make(chan struct{}), make(chan struct{})
			server.Inject(minimongo.Fault{Command: "update", After: minimongo.Action{Wait: answer}, Reached: func() { close(applied) }})
			var res []ClaimResult
			var err error
			var wg sync.WaitGroup
			wg.Go(func() { res, err = f.store.Claim(t.Context(), us, bit, ours, noon) })
			<-applied
			if !c.before || c.mixed { // they claim while our answer is under way
				await(t, func() bool { return f.get(2).was.runs[0] == ours })
				if !c.before {
					await(t, func() bool { return f.get(1).was.runs[0] == ours })
					three(1)
				}
				three(2)
			}
			close(answer)
			wg.Wait()
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range c.want {
				if res[i].State != want {
					t.Errorf("user %d: %s, want %s", i+1, res[i].State, want)
				}
			}
		})
	}
}
