package pattern

import (
	"maps"
	"os"
	"slices"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2/syntax"
	"github.com/stretchr/testify/require"
)

// libraryCategories are names that the unicode package does not define, from every group.
var libraryCategories = []string{
	"Emoji", "Extended_Pictographic", "Math", "Grapheme_Cluster_Break=Extend", "Grapheme_Cluster_Break=LVT", "Indic_Conjunct_Break=Linker",
	"Sentence_Break=Lower", "Sentence_Break=Sp", "Word_Break=ALetter", "Word_Break=Numeric",
}

// everyCharacter returns the set that a predicate describes.
func everyCharacter(t *testing.T, has func(rune) bool) runeSet {
	t.Helper()
	if testing.Short() {
		t.Skip("asks about every character many times")
	}
	set := runeSet{}
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if !has(r) {
			continue
		}
		if last := len(set) - 1; last >= 0 && set[last].hi+1 == r {
			set[last].hi = r
			continue
		}
		set = append(set, span{r, r})
	}
	return set
}

// TestCategoryCuts_Categories_ChangeNowhereElse: the library determines the characters of a category, and categoryCuts where that can
// change. With PATTERN_CASES, every category is compared.
func TestCategoryCuts_Categories_ChangeNowhereElse(t *testing.T) {
	names := []string{syntax.WordCategoryText, syntax.SpaceCategoryText, "L", "Nd", "Lu", "Greek", "Noncharacter_Code_Point", "Co"}
	names = append(names, libraryCategories...)
	if os.Getenv("PATTERN_CASES") != "" {
		for _, tables := range []map[string]*unicode.RangeTable{unicode.Properties, unicode.Categories, unicode.Scripts} {
			names = slices.AppendSeq(names, maps.Keys(tables))
		}
	}
	for _, name := range names {
		set := category(name)
		want := everyCharacter(t, set.Contains)
		require.NotEmpty(t, want, name)
		for range 2 {
			require.Equal(t, want, where(set.Contains, append(categoryCuts(name), 0, 1, 2, 3)), name)
		}
	}
	require.Equal(t, everyCharacter(t, syntax.IsWordChar), perlWord())
}

func TestCategoryCuts_Changed_StayAsTheyAre(t *testing.T) {
	first := categoryCuts("Emoji")
	want := slices.Clone(first)
	clear(first)
	again := categoryCuts("Emoji")
	require.Equal(t, want, again)
	clear(again)
	require.Equal(t, want, categoryCuts("Emoji"))
}

func TestCharSet_Classes_HaveTheirCharacters(t *testing.T) {
	for _, text := range []string{
		"[a-z]", "[^a-z]", `[\w-[\d_]]`, `[^\p{Lu}\P{Nd}]`, `[\x{100}-\x{10FFFF}-[\x{200}-\x{FFFF}]]`, `[\uD800-\uE001x]`, `(?i)[k-sſ]`, `[\s\S-[é]]`,
		`[\x{FFFD}\uDFFF]`, `[^\x{10FFFF}a]`,
	} {
		tree, err := syntax.Parse(text, syntax.ParseOptions{})
		require.NoError(t, err)
		node := tree.Root.Children[0]
		require.NotNil(t, node.Set, text)
		surrogates := runeSet{{0xD800, 0xDFFF}}
		want := everyCharacter(t, func(r rune) bool { return !surrogates.has(r) && node.Set.Contains(r) })
		got := charSet(node.Set)
		require.Equal(t, want, everyCharacter(t, func(r rune) bool { return !surrogates.has(r) && got.has(r) }), text)
	}
}
