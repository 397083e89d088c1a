package explain

import (
	"cmp"
	"slices"
	"strings"
)

// didYouMean names the nearest of the names that exist: ", nearest: a, b". It is empty if none is near.
func didYouMean(name string, names []string) string {
	if near := Near(name, names); len(near) > 0 {
		return "; similar: " + strings.Join(near, ", ")
	}
	return ""
}

// nearNames is the number of names that Near returns.
const nearNames = 3

// Near returns at most three of the names that resemble a name, the nearest first.
func Near(name string, names []string) []string {
	type candidate struct {
		name     string
		distance int
	}
	var near []candidate
	for _, n := range names {
		// A third of the letters may differ.
		if d := distance(name, n); d <= max(len(name), len(n))/3 || strings.HasPrefix(n, name) {
			near = append(near, candidate{n, d})
		}
	}
	slices.SortFunc(near, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.name, b.name))
	})
	var result []string
	for _, c := range near[:min(len(near), nearNames)] {
		result = append(result, c.name)
	}
	return result
}

// distance counts the letters to insert, remove or replace.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
