package screen

import (
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"
)

const (
	// defaultWidth is the width, in columns, of output that is not a terminal.
	defaultWidth = 80
	// smallestWidth is the smallest width for which text is laid out; narrower terminals wrap it.
	smallestWidth = 20
)

// Screen is the place to which a command writes text.
type Screen struct {
	// Width is in columns. Height is in lines; 0 is unlimited.
	Width, Height int
	// Terminal reports whether the output is a terminal, Colors whether text on it is colored.
	Terminal, Colors bool
}

// Of returns the screen behind a stream: a terminal, or 80 columns without colors. NO_COLOR and TERM=dumb switch colors off.
func Of(out io.Writer) Screen {
	s := Screen{Width: defaultWidth}
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return s
	}
	s.Terminal = true
	s.Colors = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if width, height, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
		s.Width, s.Height = max(width, smallestWidth), height
	}
	return s
}

// Color is a color of text.
type Color int

// The colors are parameters of the escape sequence SGR.
const (
	Plain   Color = 0
	Bold    Color = 1
	Faint   Color = 2
	Red     Color = 31
	Green   Color = 32
	Yellow  Color = 33
	Blue    Color = 34
	Magenta Color = 35
	Cyan    Color = 36
)

// Paint colors text, if the screen has colors.
func (s Screen) Paint(color Color, text string) string {
	if !s.Colors || color == Plain || text == "" {
		return text
	}
	return "\x1b[" + strconv.Itoa(int(color)) + "m" + text + "\x1b[0m"
}

// Frame returns the bytes that draw text instead of the frame before: on a terminal over it, else below it after an empty line. Lines that do
// not fit on the terminal are counted in its last line.
func (s Screen) Frame(text string, first bool) string {
	if !s.Terminal {
		if first {
			return text
		}
		return "\n" + text
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if s.Height > 1 && len(lines) >= s.Height {
		hidden := len(lines) - s.Height + 2
		lines = append(lines[:s.Height-2:s.Height-2], "… "+strconv.Itoa(hidden)+" more lines")
	}
	const home, clearLine, clearRest, clearAll = "\x1b[H", "\x1b[K", "\x1b[J", "\x1b[2J"
	frame := home + strings.Join(lines, clearLine+"\n") + clearLine + "\n" + clearRest
	if first {
		return clearAll + frame
	}
	return frame
}
