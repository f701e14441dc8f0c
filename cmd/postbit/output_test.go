package main

import "testing"

func TestVisible(t *testing.T) {
	for _, row := range []struct{ name, text, want string }{
		{"plain", "Zoë, 山田 花子", "Zoë, 山田 花子"},
		{"a space that does not break", "12\u00a0000\u202f€", "12\u00a0000\u202f€"},
		{"an ideographic space", "山田\u3000花子", "山田\u3000花子"},
		{"joined emoji", "👩\u200d🌾", "👩\u200d🌾"},
		{"a Persian name, joined apart", "علی\u200cرضا", "علی\u200cرضا"},
		{"an escape", "a\x1b[31mb", "a\ufffd[31mb"},
		{"a C1 control", "a\u009b31mb", "a\ufffd31mb"},
		{"a turn of direction", "a\u202eb\u2066c", "a\ufffdb\ufffdc"},
		{"a new line", "a\nb\u2028c", "a\ufffdb\ufffdc"},
		{"invalid UTF-8", "a\xff\xfeb", "a\ufffdb"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := visible(row.text); got != row.want {
				t.Errorf("%q, want %q", got, row.want)
			}
		})
	}
}
