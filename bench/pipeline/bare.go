package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/emersion/go-smtp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"golang.org/x/sync/errgroup"
)

const (
	batchUsers = 500
	waveUsers  = 32
	mailBytes  = 6 << 10
)

// seed makes users whom every rule lets pass.
func seed(ctx context.Context, users *mongo.Collection, n int) error {
	for from := 0; from < n; from += 2000 {
		var docs []any
		for i := from; i < min(from+2000, n); i++ {
			docs = append(docs, bson.D{{Key: "_id", Value: bson.NewObjectID()}, {Key: "email", Value: fmt.Sprintf("u%d@example.com", i)}, {Key: "name", Value: "Zoë Müller"},
				{Key: "timezone", Value: "Europe/Berlin"}, {Key: "plan", Value: "free"}, {Key: "city", Value: "Köln"}, {Key: "bio", Value: strings.Repeat("x", 200)}})
		}
		if _, err := users.InsertMany(ctx, docs, options.InsertMany().SetOrdered(false)); err != nil {
			return err
		}
	}
	return nil
}

// bare sends one mail to every user, over as many connections as there are batches at once.
func bare(ctx context.Context, db *mongo.Database, addr string, o settings) error {
	durable := options.Collection().SetWriteConcern(&writeconcern.WriteConcern{W: "majority", Journal: ptr(true)})
	users, batches := db.Collection("users", durable), db.Collection("bare_batches", durable)
	cur, err := users.Find(ctx, bson.D{}, options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}).SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return err
	}
	var all []struct {
		ID bson.ObjectID `bson:"_id"`
	}
	if err := cur.All(ctx, &all); err != nil {
		return err
	}
	msg := message()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(o.concurrency)
	for n := 0; n*batchUsers < len(all); n++ {
		var ids []bson.ObjectID
		for _, u := range all[n*batchUsers : min((n+1)*batchUsers, len(all))] {
			ids = append(ids, u.ID)
		}
		g.Go(func() error { return bareBatch(ctx, users, batches, addr, n, ids, msg) })
	}
	return g.Wait()
}

func ptr[T any](v T) *T { return &v }

func message() []byte {
	var b bytes.Buffer
	b.WriteString("From: a@example.com\r\nSubject: hello\r\nMIME-Version: 1.0\r\nContent-Type: text/html; charset=utf-8\r\n\r\n")
	for b.Len() < mailBytes {
		b.WriteString("<p>" + strings.Repeat("lorem ipsum ", 5) + "dolor sit</p>\r\n")
	}
	return b.Bytes()
}

func bareBatch(ctx context.Context, users, batches *mongo.Collection, addr string, n int, ids []bson.ObjectID, msg []byte) error {
	if _, err := batches.InsertOne(ctx, bson.D{{Key: "_id", Value: n}, {Key: "users", Value: ids}, {Key: "epoch", Value: 1}}); err != nil {
		return err
	}
	conn, err := smtp.Dial(addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	cur, err := users.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: ids[0]}, {Key: "$lte", Value: ids[len(ids)-1]}}}},
		options.Find().SetProjection(bson.D{{Key: "bio", Value: 0}}))
	if err != nil {
		return err
	}
	var docs []struct {
		ID    bson.ObjectID `bson:"_id"`
		Email string        `bson:"email"`
	}
	if err := cur.All(ctx, &docs); err != nil {
		return err
	}
	log := make([]byte, 9*len(ids))
	for at := 0; at < len(docs); at += waveUsers {
		wave := docs[at:min(at+waveUsers, len(docs))]
		write := func(set bson.D) error {
			_, err := batches.UpdateOne(ctx, bson.D{{Key: "_id", Value: n}, {Key: "epoch", Value: 1}}, bson.D{{Key: "$set", Value: set}})
			return err
		}
		if err := write(bson.D{{Key: "waves", Value: at}, {Key: "open", Value: make([]byte, 2*len(wave))}, {Key: "log", Value: log}}); err != nil {
			return err
		}
		var claims []mongo.WriteModel
		now := time.Now()
		for _, u := range wave {
			claims = append(claims, mongo.NewUpdateOneModel().
				SetFilter(bson.D{{Key: "_id", Value: u.ID}, {Key: "tpls_sent_at_least_once", Value: nil}, {Key: "postbit.last_at", Value: nil}}).
				SetUpdate(bson.D{{Key: "$set", Value: bson.D{{Key: "tpls_sent_at_least_once", Value: []byte{128}}, {Key: "postbit.first_at", Value: now},
					{Key: "postbit.last_at", Value: now}, {Key: "postbit.runs", Value: make([]byte, 16)}}}}))
		}
		if _, err := users.BulkWrite(ctx, claims, options.BulkWrite().SetOrdered(false)); err != nil {
			return err
		}
		for _, u := range wave {
			if err := conn.SendMail("a@example.com", []string{u.Email}, bytes.NewReader(msg)); err != nil {
				return err
			}
		}
		if err := write(bson.D{{Key: "open", Value: nil}, {Key: "log", Value: log}}); err != nil {
			return err
		}
	}
	return conn.Quit()
}
