package screen_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/cli/screen"
)

// terminal returns the side of a pseudo-terminal that programs write to.
func terminal(t *testing.T, width, height uint16) *os.File {
	t.Helper()
	controller, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = controller.Close() })
	fd := int(controller.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height}))
	file, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func TestOf_Terminal_WidthAndColors(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	out := terminal(t, 132, 50)
	assert.Equal(t, screen.Screen{Width: 132, Height: 50, Terminal: true, Colors: true}, screen.Of(out))
	t.Setenv("NO_COLOR", "1")
	assert.Equal(t, screen.Screen{Width: 132, Height: 50, Terminal: true}, screen.Of(out))
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "dumb")
	assert.False(t, screen.Of(out).Colors)
	assert.Equal(t, 20, screen.Of(terminal(t, 3, 5)).Width)
}

func TestOf_OtherOutput_80ColumnsWithoutColors(t *testing.T) {
	t.Parallel()
	file, err := os.Create(t.TempDir() + "/out")
	require.NoError(t, err)
	defer file.Close()
	assert.Equal(t, screen.Screen{Width: 80}, screen.Of(file))
	assert.Equal(t, screen.Screen{Width: 80}, screen.Of(io.Discard))
}

func TestPaint_Colors_OnlyWithColors(t *testing.T) {
	t.Parallel()
	colored := screen.Screen{Colors: true}
	assert.Equal(t, "\x1b[31mx\x1b[0m", colored.Paint(screen.Red, "x"))
	assert.Equal(t, "x", colored.Paint(screen.Plain, "x"))
	assert.Empty(t, colored.Paint(screen.Red, ""))
	assert.Equal(t, "x", screen.Screen{}.Paint(screen.Red, "x"))
}

func TestFrame_Terminal_OverTheFrameBefore(t *testing.T) {
	t.Parallel()
	s := screen.Screen{Width: 80, Height: 4, Terminal: true}
	assert.Equal(t, "\x1b[2J\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J", s.Frame("a\nb\n", true))
	assert.Equal(t, "\x1b[Ha\x1b[K\n\x1b[J", s.Frame("a\n", false))
	assert.Equal(t, "\x1b[H1\x1b[K\n2\x1b[K\n… 3 more lines\x1b[K\n\x1b[J", s.Frame("1\n2\n3\n4\n5\n", false))
	blocks := screen.Screen{Width: 80}
	assert.Equal(t, "a\n", blocks.Frame("a\n", true))
	assert.Equal(t, "\na\n", blocks.Frame("a\n", false))
}

func TestCut_Names_BeginningAndEndStay(t *testing.T) {
	t.Parallel()
	for width, want := range map[int]string{20: "train-worker-0", 14: "train-worker-0", 13: "train-…rker-0", 5: "tr…-0", 2: "t…", 1: "…"} {
		got := screen.Cut("train-worker-0", width)
		assert.Equal(t, want, got, width)
		assert.LessOrEqual(t, utf8.RuneCountInString(got), width)
	}
	assert.Equal(t, "×××", screen.Cut("×××", 3))
}

func TestWrap_Sentences_LinesWithIndent(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"1. move a", "   and b"}, screen.Wrap("move a and b", "1. ", "   ", 10))
	assert.Equal(t, []string{"- "}, screen.Wrap("", "- ", "  ", 10))
	assert.Equal(t, []string{"kubectl-prism-x", "y"}, screen.Wrap("kubectl-prism-x y", "", "", 5), "words are not cut")
	assert.Equal(t, []string{"ku…-x", "y"}, screen.Cuts("kubectl-prism-x y", "", "", 5))
}

func TestTable_Narrow_NamesCutSentencesWrappedNumbersWhole(t *testing.T) {
	t.Parallel()
	columns := []screen.Column{
		{Title: "NAME", Kind: screen.Name}, {Title: "BYTES", Kind: screen.Number}, {Title: "STATE", Kind: screen.Word}, {Title: "DETAIL", Kind: screen.Sentence},
	}
	rows := [][]string{{"a-very-long-name-of-a-node", "123456789", "Ready", "one two three four five six seven"}, {"b", "1", "NotReady", "x"}}
	assert.Equal(t, ""+
		"NAME       BYTES  STATE     DETAIL\n"+
		"a-…de  123456789  Ready     one two three four\n"+
		"                            five six seven\n"+
		"b              1  NotReady  x\n", screen.Screen{Width: 48}.Table(columns, rows, nil))
	for width := 20; width < 120; width++ {
		text := screen.Screen{Width: width}.Table(columns, rows, nil)
		assert.Contains(t, text, "123456789", width)
		for line := range strings.Lines(text) {
			assert.LessOrEqual(t, utf8.RuneCountInString(line)-1, max(width, 48), width)
		}
	}
	painted := screen.Screen{Width: 100}.Table(columns, rows, func(row, column int, text string) string {
		return fmt.Sprintf("<%d%d %s>", row, column, strings.TrimSpace(text))
	})
	assert.Contains(t, painted, "<12 NotReady>")
	assert.NotContains(t, painted, "NAME>", "titles are not painted")
}

func TestItems_Width_PackedIntoLines(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"aa  bb", "cc"}, screen.Items([]string{"aa", "bb", "cc"}, 6, screen.Cut))
	assert.Equal(t, []string{"a…c"}, screen.Items([]string{"abbc"}, 3, screen.Cut))
	assert.Empty(t, screen.Items(nil, 3, screen.Cut))
}
