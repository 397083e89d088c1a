package download

import (
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
)

// maxName is the maximum length of a file name in bytes; names of partial files are longer, and file systems allow 255.
const maxName = 200

// Names returns one file name for each report: the name that its container chose, reduced to a plain file name. If file names are equal,
// ignoring case, the names of the reports are added to them.
func Names(reports []v1alpha1.Report) []string {
	names := make([]string, len(reports))
	for i := range reports {
		names[i] = plain(&reports[i])
	}
	separate(names, func(i int) string {
		extension := path.Ext(names[i])
		id := "-" + letters(reports[i].Name)
		return bounded(strings.TrimSuffix(names[i], extension), maxName-len(extension)-len(id)) + id + extension
	})
	// A container can choose the file name of another report.
	separate(names, func(i int) string { return letters(reports[i].Name) + path.Ext(names[i]) })
	return names
}

// separate renames all files of the same name.
func separate(names []string, rename func(i int) string) {
	count := map[string]int{}
	for _, name := range names {
		count[strings.ToLower(name)]++
	}
	for i, name := range names {
		if count[strings.ToLower(name)] > 1 {
			names[i] = rename(i)
		}
	}
}

// plain returns a file name of letters, digits and ._-+@ with the extension of reports, which is neither hidden nor a device of any system.
func plain(r *v1alpha1.Report) string {
	wanted := r.Status.File
	if wanted == "" {
		wanted = path.Base(r.Status.Path)
	}
	extension := ".nsys-rep"
	if r.Status.State == "Raw" || strings.HasSuffix(wanted, ".qdstrm") {
		extension = ".qdstrm"
	}
	base := strings.TrimLeft(letters(strings.TrimSuffix(wanted, extension)), ".-_")
	name := bounded(base, maxName-len(extension)) + extension
	if base == "" || !filepath.IsLocal(name) || filepath.Base(name) != name {
		return letters(r.Name) + extension
	}
	return name
}

// letters replaces every other character.
func letters(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("._-+@", r):
			return r
		}
		return '_'
	}, text)
}

// bounded returns the first bytes of a text, up to the end of a character.
func bounded(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
