package main

import (
	"regexp"
	"strconv"
	"strings"
)

// limits are the valid values according to the errors of a field.
type limits struct {
	values           []string
	lowest, highest  string
	items            int
	notEmpty, unique bool
}

var (
	supportedValues = regexp.MustCompile(`supported values: (.+)$`)
	betweenValues   = regexp.MustCompile(`^must be between (\S+) and (\S+), got`)
	mostItems       = regexp.MustCompile(`^must have at most (\d+) items`)
	atLeastZero     = regexp.MustCompile(`^must be greater than or equal to (\S+), got`)
)

// limitsOf reads them from the errors of a field.
func limitsOf(texts []string) limits {
	var l limits
	for _, text := range texts {
		if m := supportedValues.FindStringSubmatch(text); m != nil {
			l.values = strings.Split(m[1], ", ")
		}
		if m := betweenValues.FindStringSubmatch(text); m != nil && l.lowest == "" {
			l.lowest, l.highest = m[1], m[2]
		}
		if m := atLeastZero.FindStringSubmatch(text); m != nil {
			l.lowest = m[1]
		}
		if m := mostItems.FindStringSubmatch(text); m != nil {
			l.items, _ = strconv.Atoi(m[1])
		}
		l.notEmpty = l.notEmpty || strings.HasPrefix(text, "must not be empty")
		l.unique = l.unique || strings.HasPrefix(text, "duplicate value")
	}
	return l
}

// text is the limits in one cell.
func (l limits) text() string {
	var parts []string
	if len(l.values) > 0 {
		parts = append(parts, codes(l.values))
	}
	switch {
	case l.highest != "":
		parts = append(parts, code(l.lowest)+" to "+code(l.highest))
	case l.lowest != "":
		parts = append(parts, "at least "+code(l.lowest))
	}
	if l.items > 0 {
		parts = append(parts, "at most "+strconv.Itoa(l.items)+" items")
	}
	if l.notEmpty {
		parts = append(parts, "not empty")
	}
	if l.unique {
		parts = append(parts, "no duplicates")
	}
	return strings.Join(parts, "; ")
}
