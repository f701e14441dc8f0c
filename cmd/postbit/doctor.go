package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/internal/analytics"
	"postbit/internal/config"
	"postbit/internal/hello"
	"postbit/internal/mail"
	"postbit/internal/quantity"
	"postbit/templates"
)

type doctorCmd struct {
	Sample int `default:"1000" help:"How many users are looked at."`
}

func (doctorCmd) Help() string {
	return `Looks at everything that the settings name and changes nothing but for one document that it writes and deletes again.
Exit code 3: something is not as it should be.

Example:

    postbit doctor`
}

// Results of a check.
const (
	checkOK   = "ok"
	checkWarn = "warn"
	checkFail = "fail"
)

type checkJSON struct {
	Check  string `json:"check"`
	Result string `json:"result"` // ok, warn or fail
	Detail string `json:"detail"`
}

// doctor gathers what it finds; one failed check keeps no other from being made.
type doctor struct {
	*graph
	checks    []checkJSON
	keys      []*mail.SigningKey
	keyFaults []error
}

func (d *doctor) note(check, result, format string, args ...any) {
	d.checks = append(d.checks, checkJSON{check, result, d.cfg.Scrub(fmt.Sprintf(format, args...))})
}

func (c doctorCmd) Run(ctx context.Context, a *app) error {
	d := &doctor{graph: &graph{app: a}}
	err := errors.Join(d.look(ctx, c.Sample), d.Close())
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(struct {
			Checks []checkJSON `json:"checks"`
		}{d.checks})
	} else {
		t := table{header: []string{"CHECK", "RESULT", "DETAIL"}}
		for _, k := range d.checks {
			t.add(k.Check, k.Result, k.Detail)
		}
		err = t.print(a.out)
	}
	for _, k := range d.checks {
		if err == nil && k.Result != checkOK {
			return errNo
		}
	}
	return err
}

func (d *doctor) look(ctx context.Context, sample int) error {
	// Each part is opened on its own, so that one that is missing or down does not hide the others.
	parts := []struct {
		name string
		need config.Needs
		look func(context.Context)
	}{
		{"mongo", config.Needs{Mongo: true}, func(ctx context.Context) { d.lookAtMongo(ctx, sample) }},
		{"redis", config.Needs{Redis: true}, d.lookAtRedis},
		{"smtp", config.Needs{SMTP: true}, d.lookAtSMTP},
		{"links", config.Needs{Links: true}, d.lookAtLinks},
	}
	d.keys, d.keyFaults = d.signingKeys()
	all := d.graph
	for _, p := range parts {
		g, err := d.unsigned().open(ctx, p.need)
		if err != nil {
			d.note(p.name, checkFail, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
			continue
		}
		d.graph = g
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		p.look(ctx)
		cancel()
		err = g.Close()
		d.graph = all
		if err != nil {
			return err
		}
	}
	d.lookAtDKIM(ctx)
	d.lookAtDataDir()
	return nil
}

func (d *doctor) lookAtMongo(ctx context.Context, sample int) {
	asked := d.clk.Now()
	said, err := hello.Ask(ctx, d.db)
	if err != nil {
		d.note("mongo", checkFail, "%v", err)
		return
	}
	took := d.clk.Now().Sub(asked)
	kind := "a standalone server"
	switch {
	case d.stack != nil:
		kind = "minimongo, embedded"
	case said.SetName != "":
		kind = "replica set " + said.SetName
	case said.Router():
		kind = "a sharded cluster"
	}
	d.note("mongo", checkOK, "%s, database %s", kind, d.db.Name())
	if said.LocalTime.IsZero() {
		d.note("clock", checkFail, "the database does not tell its time (hello without localTime), so no worker can own a batch")
	} else if off := said.LocalTime.Sub(asked.Add(took / 2)); off.Abs() > 5*time.Second {
		d.note("clock", checkWarn, "this machine's clock is %s off the database's; postbit follows the database, but look at both", off.Abs().Round(time.Millisecond))
	} else {
		d.note("clock", checkOK, "within 5 s of the database's")
	}
	d.lookAtDurability(ctx)
	d.lookAtIndexes(ctx)
	d.lookAtTemplates(ctx)
	d.lookAtUsers(ctx, sample)
}

// lookAtDurability writes as claims are written: acknowledged by a majority and from the journal.
func (d *doctor) lookAtDurability(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	coll := d.db.Collection("doctor")
	id := bson.NewObjectID()
	if _, err := coll.InsertOne(ctx, bson.D{{Key: "_id", Value: id}}); err != nil {
		d.note("durable", checkFail, "a write with w: majority, j: true: %v", err)
		return
	}
	err := coll.FindOneAndDelete(ctx, bson.D{{Key: "_id", Value: id}}).Err()
	if err != nil {
		d.note("durable", checkFail, "what was written with w: majority, j: true was not read back: %v", err)
		return
	}
	d.note("durable", checkOK, "w: majority, j: true is acknowledged and read back")
}

func (d *doctor) lookAtIndexes(ctx context.Context) {
	var missing []string
	for _, want := range []struct{ collection, field string }{{templates.Collection, "bitIndex"}, {"runs", "short"}, {analytics.AppliedCollection, "ids"}} {
		if ok, err := hasUniqueIndex(ctx, d.db.Collection(want.collection), want.field); err != nil {
			d.note("indexes", checkFail, "%s: %v", want.collection, err)
			return
		} else if !ok {
			missing = append(missing, want.collection+"."+want.field)
		}
	}
	if len(missing) > 0 {
		d.note("indexes", checkWarn, "no unique index on %s; `postbit serve` makes them when it starts", strings.Join(missing, ", "))
		return
	}
	d.note("indexes", checkOK, "the unique indexes are there")
}

func hasUniqueIndex(ctx context.Context, coll *mongo.Collection, field string) (bool, error) {
	specs, err := coll.Indexes().ListSpecifications(ctx)
	var none mongo.CommandError
	if errors.As(err, &none) && none.Code == 26 { // NamespaceNotFound: there is no collection so far
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, s := range specs {
		first, err := s.KeysDocument.IndexErr(0)
		if err == nil && first.Key() == field && s.Unique != nil && *s.Unique {
			return true, nil
		}
	}
	return false, nil
}

func (d *doctor) lookAtTemplates(ctx context.Context) {
	list, err := d.templates.List(ctx)
	if err != nil {
		d.note("templates", checkFail, "%v", err)
		return
	}
	d.lookAtSenders(ctx, list)
	var nameless []string
	for _, e := range list {
		if e.Revision == 0 || e.RetiredAt != nil || d.cfg.From != "" {
			continue
		}
		t, err := d.templates.Get(ctx, e.Name)
		if err != nil {
			d.note("templates", checkFail, "%v", err)
			return
		}
		if t.From == "" {
			nameless = append(nameless, e.Name)
		}
	}
	if len(nameless) > 0 {
		d.note("templates", checkWarn, "%s: no sender; write from: into them, or set POSTBIT_MAIL_FROM", strings.Join(nameless, ", "))
		return
	}
	d.note("templates", checkOK, "%d", len(list))
}

func (d *doctor) lookAtUsers(ctx context.Context, sample int) {
	n, err := d.usersColl.EstimatedDocumentCount(ctx, options.EstimatedDocumentCount())
	if err != nil {
		n, err = d.usersColl.CountDocuments(ctx, bson.D{})
	}
	if err != nil {
		d.note("users", checkFail, "%v", err)
		return
	}
	if n == 0 {
		d.note("users", checkWarn, "%s.%s is empty", d.usersColl.Database().Name(), d.usersColl.Name())
		return
	}
	shape, err := d.users.Sample(ctx, sample)
	if err != nil {
		d.note("users", checkFail, "%v", err)
		return
	}
	if err := shape.Err(); err != nil {
		d.note("users", checkFail, "%v", err)
	}
	warnings := append(shapeWarnings(shape), addressWarnings(shape)...)
	for _, w := range warnings {
		d.note("users", checkWarn, "%s", w)
	}
	if len(warnings) == 0 && shape.Err() == nil {
		d.note("users", checkOK, "about %s, %d sampled", count(n), shape.Sampled)
	}
}

func (d *doctor) lookAtRedis(ctx context.Context) {
	if err := d.queue.Ping(ctx); err != nil {
		d.note("redis", checkFail, "%v", err)
		return
	}
	depths, err := d.queue.Depths()
	if err != nil {
		d.note("redis", checkFail, "%v", err)
		return
	}
	archived := 0
	for _, q := range depths {
		archived += q.Archived
	}
	d.note("redis", checkOK, "answers; %s given up, which the scheduler looks after", quantity.Of(archived, "task"))
}

func (d *doctor) lookAtSMTP(ctx context.Context) {
	conn, err := d.transport.Connect(ctx)
	if err != nil {
		d.note("smtp", checkFail, "%v", err)
		return
	}
	conn.Release()
	if d.stack != nil || d.cfg.SMTPURL.Scheme() == "outbox" {
		d.note("smtp", checkOK, "an outbox: mails become files and reach nobody")
		return
	}
	d.note("smtp", checkOK, "%s takes mail", d.cfg.SMTPURL)
}

func (d *doctor) lookAtLinks(context.Context) {
	d.note("signed", checkOK, "links and pixels are signed")
	base := d.urls.Base()
	local := strings.Contains(base, "://localhost") || strings.Contains(base, "://127.") || strings.Contains(base, "://[::1]")
	switch {
	case local:
		d.note("public_url", checkWarn, "%s: recipients elsewhere can't reach it", base)
	case strings.HasPrefix(base, "http://"):
		d.note("public_url", checkWarn, "%s: without TLS mail programs may refuse the pixel, and one-click unsubscribe asks for https (RFC 8058)", base)
	default:
		d.note("public_url", checkOK, "%s", base)
	}
}

func (d *doctor) lookAtDataDir() {
	dir := filepath.Join(d.cfg.DataDir, "spool")
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(dir, "doctor-"); err == nil {
			err = errors.Join(f.Sync(), f.Close(), os.Remove(f.Name()))
		}
	}
	if err != nil {
		d.note("spool", checkFail, "%v", err)
		return
	}
	d.note("spool", checkOK, "%s can be written", dir)
}
