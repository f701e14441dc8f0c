package config

import (
	"fmt"
	"strings"
)

// Needs says what a command asks of the settings.
type Needs struct {
	Mongo, Redis, SMTP bool
	Links              bool // signs or verifies links and pixels: public_url and secret
}

// reasons say why a half-made setting is refused.
var reasons = map[string]string{
	"mongo_uri":  "there would be no users to mail and nowhere to keep what was sent. Set it",
	"redis_uri":  "nothing would carry the batches to the workers. Set it",
	"smtp_url":   "mails would be marked as sent and reach nobody. Set it, or say outbox:DIR on purpose",
	"public_url": "pixels and unsubscribe links would lead nowhere. Set it to the address under which recipients reach `postbit serve`",
	"secret":     "pixels and unsubscribe links could not be signed. Set it to id:base64 of 32 random bytes, such as \"k1:$(openssl rand -base64 32)\", the same in every process",
}

// Require checks that the settings are whole for a command. With the embedded parts they always are: what is missing is
// made in the data directory. The error is an *Error that names each missing setting, one that is there, and the reason.
func (c *Config) Require(n Needs) error {
	if c.Embedded {
		return nil
	}
	var faults Error
	given := c.given()
	for _, m := range []struct {
		key    string
		needed bool
		set    bool
	}{
		{"mongo_uri", n.Mongo, !c.MongoURI.IsZero()},
		{"redis_uri", n.Redis, !c.RedisURI.IsZero()},
		{"smtp_url", n.SMTP, !c.SMTPURL.IsZero()},
		{"public_url", n.Links, c.PublicURL != ""},
		{"secret", n.Links, !c.Secret.IsZero()},
	} {
		if m.needed && !m.set {
			s := lookup(m.key)
			faults.add("%s is not set, but %s is: %s", s.Env(), given, reasons[m.key])
		}
	}
	return faults.orNil()
}

// given names the setting that keeps the embedded parts from starting.
func (c *Config) given() string {
	for _, key := range []string{"mongo_uri", "redis_uri", "smtp_url"} {
		if from, ok := c.origin[key]; ok {
			if strings.Contains(from, ":") { // in a file
				return fmt.Sprintf("%s (%s)", key, from)
			}
			return from
		}
	}
	return "another"
}

// Origin says where a setting came from: a variable, a flag, or file:line; "" for its default.
func (c *Config) Origin(key string) string { return c.origin[key] }

func lookup(key string) *Setting {
	for i := range Settings {
		if Settings[i].Key == key {
			return &Settings[i]
		}
	}
	panic("no setting " + key)
}
