// Package quantity writes numbers of things as people read them.
package quantity

import "strconv"

// Digits is n with commas: 4,112,009.
func Digits(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Of is n of what one of them is called, whose plural ends in s: 1 user, 4,112,009 users.
func Of[N int | int64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return Digits(int64(n)) + " " + one + "s"
}

// Verb is the form of a verb for n of a thing: has or have, is or are.
func Verb[N int | int64](n N, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
