package download

import (
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
)

// maxName is how long a file name gets, in bytes; the name of a partial file is longer, and file systems allow 255.
const maxName = 200

// Names are the files that reports are downloaded as, one for each: the names that their containers chose, reduced to a plain file name.
// Reports that have the same one, in upper or lower case, get their own names into it.
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
	// A container can choose the name that another report got.
	separate(names, func(i int) string { return letters(reports[i].Name) + path.Ext(names[i]) })
	return names
}

// separate renames all that share a name.
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

// plain is a file name of letters, digits and ._-+@ that ends as reports do, and is neither hidden nor a device of some system.
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

// bounded are the first bytes of a text, up to the end of a character.
func bounded(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
