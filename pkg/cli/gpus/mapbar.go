package gpus

import (
	"strings"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/cli/screen"
)

// bar draws the memory of a GPU, a cell for each memory slice: "[..A.BBBB]".
func bar(g *clusterview.GPU) string {
	n, free := g.MemorySlices, cellFree
	if n <= 0 {
		n = cells
	}
	if unusable(g) {
		free = cellTainted
	}
	drawn := []rune(strings.Repeat(string(free), n))
	letter := 'A'
	for i := range g.Parts {
		p := &g.Parts[i]
		switch p.Type {
		case typeMIG:
			fill(drawn, p.Start, p.Size, letter)
			letter++
		case typeWhole:
			fill(drawn, 0, n, cellWhole)
		case typeShared:
			fill(drawn, 0, rounded(int64(len(p.Uses)), sharesOf(g, p), n), cellShared)
		case typeBySize:
			fill(drawn, 0, share(g, n), cellBySize)
		default:
			fill(drawn, p.Start, max(p.Size, 1), cellOther)
		}
	}
	return "[" + string(drawn) + "]"
}

// fill draws cells, as far as they exist.
func fill(drawn []rune, start, size int, with rune) {
	for i := max(start, 0); i < min(start+size, len(drawn)); i++ {
		drawn[i] = with
	}
}

// share is the number of cells for the memory in use.
func share(g *clusterview.GPU, n int) int {
	if g.Free <= 0 {
		return n
	}
	return rounded(g.Memory-g.Free, g.Memory, n)
}

// rounded is the number of n cells for a part of a whole: at least 1, and all only for all.
func rounded(part, whole int64, n int) int {
	if whole <= 0 || part >= whole {
		return n
	}
	return min(max(int((2*part*int64(n)+whole)/(2*whole)), 1), max(n-1, 1))
}

// letterColor gives neighbors different colors.
func letterColor(letter rune) screen.Color {
	colors := []screen.Color{screen.Cyan, screen.Blue, screen.Magenta, screen.Yellow}
	return colors[int(letter-'A')%len(colors)]
}

// cellColor is the color of a cell.
func cellColor(cell rune) screen.Color {
	switch cell {
	case cellFree:
		return screen.Green
	case cellTainted:
		return screen.Red
	case cellWhole:
		return screen.Blue
	case cellBySize:
		return screen.Magenta
	case cellShared:
		return screen.Yellow
	case cellOther:
		return screen.Cyan
	}
	if cell >= 'A' {
		return letterColor(cell)
	}
	return screen.Plain
}

// paintBar colors the cells of a bar, equal neighbors together.
func paintBar(s screen.Screen, text string) string {
	var out strings.Builder
	runes := []rune(text)
	for start := 0; start < len(runes); {
		end := start
		for end < len(runes) && runes[end] == runes[start] {
			end++
		}
		out.WriteString(s.Paint(cellColor(runes[start]), string(runes[start:end])))
		start = end
	}
	return out.String()
}
