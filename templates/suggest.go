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

// distance is the Levenshtein distance of a and b, or limit if it is not below that.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j+1]+1, row[j]+1)
		}
	}
	return min(row[len(b)], limit)
}
