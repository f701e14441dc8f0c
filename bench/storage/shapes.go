package main

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/bench/internal/lab"
	"postbit/internal/bitfield"
)

const field = "tpls_sent_at_least_once"

// shape is a way to write down a set of templates: the value of the field, and how many bytes of it say something.
type shape struct {
	name  string
	value func(sent []int) (any, int)
}

var shapes = []shape{
	{"names", func(sent []int) (any, int) {
		names, n := make(bson.A, len(sent)), 0
		for i, t := range sent {
			name := templateName(t)
			names[i], n = name, n+len(name)
		}
		return names, n
	}},
	{"int32", func(sent []int) (any, int) {
		numbers := make(bson.A, len(sent))
		for i, t := range sent {
			numbers[i] = int32(t)
		}
		return numbers, 4 * len(sent)
	}},
	{"blob", func(sent []int) (any, int) {
		var blob []byte
		for _, t := range sent {
			blob = bitfield.With(blob, t)
		}
		return bson.Binary{Data: blob}, len(blob)
	}},
}

// templateName has 20 bytes: what the names of the source come to by its own arithmetic.
func templateName(t int) string { return fmt.Sprintf("newsletter-issue-%03d", t) }

// sent draws the templates of user i. The same user has the same in every shape.
func sent(i int, shares []share) []int {
	r := rand.New(rand.NewPCG(uint64(i), 148))
	at, n := r.Float64(), 0
	for _, s := range shares {
		n = s.templates
		if at < s.part {
			break
		}
		at -= s.part
	}
	if n == 0 {
		return nil
	}
	if len(shares) == 1 {
		all := make([]int, n)
		for t := range all {
			all[t] = t
		}
		return all
	}
	var out []int
	for t := range n - 1 {
		if r.Float64() < 0.3 {
			out = append(out, t)
		}
	}
	return append(out, n-1) // the last template that such users had decides the length of the blob
}

// measure writes --users documents of one shape into a fresh server and weighs them.
func measure(ctx context.Context, o settings, s shape, shares []share) (f figures, err error) {
	l, err := lab.New("postbit-storage-")
	if err != nil {
		return f, err
	}
	defer l.Close(false)
	server, client, err := l.Database(ctx, o.mongo)
	if err != nil {
		return f, err
	}
	empty := treeSize(l.Dir)
	coll := client.Database("storage").Collection("users")
	var payload, size int64
	for from := 0; from < o.users; from += 5000 {
		var docs []any
		for i := from; i < min(from+5000, o.users); i++ {
			doc := bson.D{{Key: "_id", Value: int64(i)}}
			if had := sent(i, shares); len(had) > 0 {
				v, n := s.value(had)
				before := bsonSize(doc)
				doc = append(doc, bson.E{Key: field, Value: v})
				payload, size = payload+int64(n), size+bsonSize(doc)-before
			}
			docs = append(docs, doc)
		}
		if _, err := coll.InsertMany(ctx, docs, options.InsertMany().SetOrdered(false)); err != nil {
			return f, err
		}
	}
	if err := client.Disconnect(ctx); err != nil {
		return f, err
	}
	server.Stop(time.Minute) // a clean end writes the checkpoint
	disk := max(treeSize(l.Dir)-empty, 0)
	scale := float64(allUsers) / float64(o.users)
	return figures{Payload: int64(float64(payload) * scale), BSON: int64(float64(size) * scale), Disk: int64(float64(disk) * scale), Mean: float64(payload) / float64(o.users)}, nil
}

func bsonSize(doc bson.D) int64 {
	b, err := bson.Marshal(doc)
	if err != nil {
		panic(err) // values made above: cannot fail
	}
	return int64(len(b))
}

// treeSize adds up the files of the server's storage but for its journal, which is bounded and says nothing about the collection.
func treeSize(dir string) int64 {
	var n int64
	_ = filepath.WalkDir(filepath.Join(dir, "mongo"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if match, _ := filepath.Match("WiredTiger*Log.*", d.Name()); match {
			return nil
		}
		if info, err := d.Info(); err == nil {
			n += info.Size()
		}
		return nil
	})
	return n
}
