// Package hello asks a MongoDB server what it says of itself.
package hello

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Answer is what postbit goes by in the reply to the command hello.
type Answer struct {
	LocalTime time.Time `bson:"localTime"` // in milliseconds; zero: it does not tell
	SetName   string    `bson:"setName"`   // "": no member of a replica set
	Msg       string    `bson:"msg"`
}

// Router reports whether it was a router of a sharded cluster that answered.
func (a Answer) Router() bool { return a.Msg == "isdbgrid" }

// Ask asks the primary, or a router before it. The error is the driver's.
func Ask(ctx context.Context, db *mongo.Database) (a Answer, err error) {
	err = db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&a)
	return a, err
}
