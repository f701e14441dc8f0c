package templates

// suggest is "; subject?" for a misspelt word that is close to one of those known, or nothing.
func suggest(word string, known []string) string {
	best, least := "", 3
	for _, k := range known {
		if d := distance(word, k, least); d < least && d*2 < len(k) {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return "; " + best + "?"
}

// distance counts the letters to add, to drop, to change, and the neighbours to swap, to get from a to b; limit if it is not
// below that.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	width := len(b) + 1
	d := make([]int, (len(a)+1)*width)
	for i := range len(a) + 1 {
		d[i*width] = i
	}
	for j := range width {
		d[j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := d[(i-1)*width+j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			best := min(change, d[(i-1)*width+j]+1, d[i*width+j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				best = min(best, d[(i-2)*width+j-2]+1)
			}
			d[i*width+j] = best
		}
	}
	return min(d[len(d)-1], limit)
}
