// Package spelling finds the name that somebody meant who wrote another one.
package spelling

// Nearest is the one of the known names that was probably meant, the first of several that are equally near; "" where none is near.
func Nearest(word string, known []string) string {
	best, least := "", max(2, len(word)/3)+1
	for _, name := range known {
		if d := distance(word, name, least); d < least && 2*d <= len(name) {
			best, least = name, d
		}
	}
	return best
}

// Hint is "; subject?" for an error that a word is unknown, or nothing where none of the known names is near.
func Hint(word string, known []string) string {
	if name := Nearest(word, known); name != "" {
		return "; " + name + "?"
	}
	return ""
}

// distance is the number of letters to insert, delete, replace or swap with their neighbour (optimal string alignment); limit where it is
// not below that. Names are short: words from outside that are not cost nothing.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, above, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := above[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, above[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, above, row = above, row, before
	}
	return min(above[len(b)], limit)
}
