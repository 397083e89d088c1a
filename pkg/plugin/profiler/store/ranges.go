package store

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/prism-gpu/prism/pkg/plugin/profiler/untrusted"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// MaxRanges is the maximum number of ranges of a process with reports; files with higher numbers are ignored.
const MaxRanges = 16

// rangeName returns the tool's suffix for the file of a range before its extension; "" for 0, which is a process with one report.
func rangeName(number int) string {
	if number == 0 {
		return ""
	}
	return "." + strconv.Itoa(number)
}

// sizeKey returns the key of a note for the size of a further range's report that stays in its container.
func sizeKey(number int) string { return "size" + rangeName(number) }

// takeOver takes the files of a finished session: one, or one for each recorded range. The report of the session, which is Recording so
// far, becomes the report of the first range when all others are taken over. Until then it must not be discarded: the next scan, even after
// a kill or an error, continues with the missing ones.
func (s *Store) takeOver(copying *copies, dir *os.File, r report.Report, said note, first bool) (done bool, err error) {
	numbers := said.ranges(&r, dir)
	if first && len(numbers) > 1 {
		copying.put(s, r, first)
		first = false
	}
	for _, number := range numbers[1:] {
		of, taken, room := said.ofRange(r, number), false, false
		of.ID = r.ID + "-" + strconv.Itoa(number)
		s.mu.Lock()
		if c := s.claims[r.ClaimUID]; c != nil {
			taken = c.report(of.ID) != nil
			room = taken || s.roomFor(copying, c) && copying.left > 0
		}
		s.mu.Unlock()
		if taken {
			continue
		}
		if !room {
			return false, nil
		}
		if of, err = s.finish(copying, dir, of, said.sized(number), number); err != nil {
			return false, err
		}
		copying.put(s, of, true)
	}
	if copying.left <= 0 && len(numbers) > 1 {
		return false, nil
	}
	r, err = s.finish(copying, dir, said.ofRange(r, numbers[0]), said, numbers[0])
	if err != nil {
		return false, err
	}
	copying.put(s, r, first)
	return true, nil
}

// ranges returns the numbers of a process's files, ascending: only 0 if it was not recorded in ranges, or there is none.
func (n note) ranges(r *report.Report, dir *os.File) (numbers []int) {
	if r.Path != "" {
		return n.pathRanges(r.Path)
	}
	there := func(number int) bool {
		for _, suffix := range []string{readySuffix, rawSuffix} {
			f, _, err := untrusted.Entry(dir, "report"+rangeName(number)+suffix)
			if err == nil {
				_ = f.Close()
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return true
			}
		}
		return false
	}
	for number := range MaxRanges + 1 {
		if there(number) {
			numbers = append(numbers, number)
		}
		if number == 0 && len(numbers) > 0 {
			break
		}
	}
	if len(numbers) == 0 {
		return []int{0}
	}
	return numbers
}

// pathRanges returns the ranges of reports that stay in their container.
func (n note) pathRanges(at string) []int {
	first := rangeOf(at)
	numbers := []int{first}
	for number := first + 1; first > 0 && number <= MaxRanges; number++ {
		if n[sizeKey(number)] != "" {
			numbers = append(numbers, number)
		}
	}
	if len(numbers) == 1 {
		return []int{0} // a name may end with a number as well
	}
	return numbers
}

// rangeOf returns the number in the path of the report of a range; 0 if there is none.
func rangeOf(at string) int {
	name := strings.TrimSuffix(at, path.Ext(at))
	number, err := strconv.Atoi(strings.TrimPrefix(path.Ext(name), "."))
	if err != nil || number < 1 || number > MaxRanges || path.Ext(name) != rangeName(number) {
		return 0
	}
	return number
}

// ofRange returns the report of a range.
func (n note) ofRange(r report.Report, number int) report.Report {
	if number == 0 {
		return r
	}
	r.File = r.File[:min(len(r.File), maxFile-len(rangeName(MaxRanges)+readySuffix))] + rangeName(number)
	if suffix := path.Ext(r.Path); r.Path != "" {
		r.Path = strings.TrimSuffix(r.Path, rangeName(rangeOf(r.Path))+suffix) + rangeName(number) + suffix
	}
	return r
}

// sized returns the note of a process with only this range.
func (n note) sized(number int) note {
	only := maps.Clone(n)
	only["size"] = n[sizeKey(number)]
	return only
}

// partial reports whether other ranges of the report's process must still be taken over. If the report were removed, it would be taken over
// again with them.
func (c *index) partial(r *report.Report) bool {
	at := max(strings.LastIndexByte(r.ID, '-'), 0)
	if len(r.ID)-at > len(rangeName(MaxRanges)) {
		return false // the session's own report
	}
	session := c.report(r.ID[:at])
	return session != nil && session.State == report.Recording
}
