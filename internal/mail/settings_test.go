package mail

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestSettings(t *testing.T) {
	s, err := parseSettings("smtp://u%40x:p%2Fw%3F@mail.example.com:587?max_messages=5&max_conns=3&idle=1m&timeout=2s&data_timeout=3m&hello=me.example.com&auth=LOGIN&tls=auto", "not.this.one")
	if err != nil {
		t.Fatal(err)
	}
	if s.user != "u@x" || s.password != "p/w?" || s.addr != "mail.example.com:587" || s.maxMessages != 5 || s.maxConns != 3 || s.idle != time.Minute ||
		s.timeout != 2*time.Second || s.dataTimeout != 3*time.Minute || s.hello != "me.example.com" || s.auth != "LOGIN" || s.startTLS != tlsAuto {
		t.Errorf("%+v", s)
	}
	if s, err = parseSettings("smtp://mail.example.com", "mx.example.com"); err != nil || s.hello != "mx.example.com" {
		t.Errorf("%+v %v", s, err)
	}
	if _, err = parseSettings("smtp://mail.example.com", "no host"); err == nil {
		t.Error("a name with a space")
	}
	for url, want := range map[string][2]string{
		"smtp://mail.example.com":     {"mail.example.com:25", tlsAuto},
		"smtp://u:p@mail.example.com": {"mail.example.com:25", tlsRequired},
		"smtp://u:p@localhost:2525":   {"localhost:2525", tlsNone},
		"smtp://[::1]":                {"[::1]:25", tlsNone},
		"smtps://mail.example.com":    {"mail.example.com:465", tlsAuto},
	} {
		if s, err := parseSettings(url, ""); err != nil || s.addr != want[0] || s.startTLS != want[1] {
			t.Errorf("%s: %+v, %v", url, s, err)
		}
	}
}

func TestBadURLs(t *testing.T) {
	for name, url := range map[string]string{
		"empty": "", "no scheme": "mail.example.com:25", "another scheme": "http://mail.example.com", "no host": "smtp://", "no host but a user": "smtp://u:hunter2@",
		"bad port": "smtp://u:hunter2@host:port", "password with a slash": "smtp://u:hunter2/x@host", "password with a percent sign": "smtp://u:hunter2%zz@host", "password with a #": "smtp://u:hunter2#@host",
		"space": "smtp://u:hunter2 @host name", "path": "smtp://u:hunter2@host/path", "unknown setting": "smtp://u:hunter2@host?tsl=none", "bad tls": "smtp://u:hunter2@host?tls=maybe", "tls with smtps": "smtps://u:hunter2@host?tls=none",
		"bad number": "smtp://u:hunter2@host?max_messages=0", "bad duration": "smtp://u:hunter2@host?timeout=5", "bad bool": "smtp://u:hunter2@host?skip_verify=si", "no such ca": "smtp://u:hunter2@host?ca=/no/such/file",
		"hello with a line break": "smtp://u:hunter2@host?hello=a%0d%0ab", "bad auth": "smtp://u:hunter2@host?auth=ntlm", "outbox without a folder": "outbox:",
	} {
		_, err := Open(url, Options{})
		if !errors.Is(err, ErrURL) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
