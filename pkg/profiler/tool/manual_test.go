package tool

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// waits replaces prism-run for a process that waits. It answers commands until its stdin is closed; fault is its failure in the second
// container.
const waits = `exec 3<&0
cd CONTAINER
tr '\0' '\n' <plan/run >strings
for line in manual=1 switch=--trace=osrt switch=--wait=primary startSwitch=--sample=none startSwitch=--cpuctxsw=none maxSessions=4; do
	grep -q "^$line$" strings || exit 90
done
second=$(ls results | grep -c ^w)
fault=
[ "$second" = 0 ] || fault=$(cat fault 2>/dev/null)
start=$(printf %016x "$(date +%s%N)")
w=w$$-$start
echo "$$ $(readlink /proc/self/ns/pid)" >>processes
[ "$fault" != exit ] || exit 3
[ "$fault" != hangs ] || { echo >hangs; cat <&3; exit 5; }
[ "$fault" != fails ] || { mkdir "results/s$$-$start" && printf 'state=Failed\nreason=FellBackUnprofiled\n' >"results/s$$-$start/note"; cat <&3; exit 0; }
mkdir "results/$w"
printf 'process=prism-proof\nstate=Waiting         \n' >"results/$w/note"
(cat <&3; touch "results/$w/closed") &
answer() {
	answers="${answers}id=$id outcome=$1 begun=1 $2 message=$3
"
	printf %s "$answers" >"results/$w/new" && mv "results/$w/new" "results/$w/answers"
}
until [ -e "results/$w/closed" ]; do
	now=$(sed -n s/^id=//p "plan/control/$w" 2>/dev/null)
	[ -n "$now" ] && [ "$now" != "$id" ] || { sleep 0.01; continue; }
	id=$now
	case $(sed -n s/^verb=//p "plan/control/$w") in
	Start)
		[ "$fault" != refuses ] || { answer Failed '' 'Configuring is not allowed'; continue; }
		mkdir "results/s$$-$start"
		answer Recording "report=s$$-$start" '';;
	Stop)
		[ "$fault" != stopped ] || { answer NotRecording '' ''; continue; }
		[ "$fault" = lost ] || echo events >"results/s$$-$start/report.qdstrm"
		answer Recorded "report=s$$-$start" '';;
	esac
done
[ "$fault" != code ] || exit 4
exit 0
`

// manualService returns a service whose prism-run records processes that wait, with a failure in the second one.
func manualService(t *testing.T, fault string) Service {
	t.Helper()
	s := serviceOf(t, true)
	path := filepath.Join(s.Programs, runProgram)
	profile, err := os.ReadFile(path)
	require.NoError(t, err)
	script := "#!/bin/sh\nif grep -q manual= " + s.Container + "/plan/run; then\n" + strings.ReplaceAll(waits, "CONTAINER", s.Container) + "fi\n" + string(profile)
	require.NoError(t, writeProgram(path, []byte(script)))
	require.NoError(t, os.WriteFile(filepath.Join(s.Container, "fault"), []byte(fault), 0o644))
	return s
}

// TestProveManual_Containers_OnePIDNamespaceEach: the processes have the same ids, as in containers that start alike.
func TestProveManual_Containers_OnePIDNamespaceEach(t *testing.T) {
	t.Parallel()
	s := manualService(t, "")
	_, err := s.once(t.Context())
	require.NoError(t, err)
	assert.Empty(t, only(t, s).Manual)
	assert.False(t, only(t, s).Proven.IsZero())
	own, err := os.Readlink("/proc/self/ns/pid")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(read(t, s, "processes")), "\n")
	require.Len(t, lines, waiters*manualRounds)
	for i, line := range lines {
		assert.True(t, strings.HasPrefix(line, "1 "), line)
		assert.NotContains(t, line, own)
		if i < waiters {
			assert.NotContains(t, lines[:i], line)
		}
	}
}

func read(t *testing.T, s Service, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(s.Container, name))
	require.NoError(t, err)
	return string(raw)
}

// TestProveManual_Fails_VersionStaysUsable: the manifest says why claims that record by hand are refused; the version is proven for others.
func TestProveManual_Fails_VersionStaysUsable(t *testing.T) {
	t.Parallel()
	for fault, want := range map[string]string{
		"exit":    "the profiler does not wait beside it: prism-run exited: exit status 3",
		"fails":   "the profiler did not start beside it: state=Failed | reason=FellBackUnprofiled",
		"refuses": "Start ended with Failed: Configuring is not allowed",
		"stopped": "Stop ended with NotRecording",
		"lost":    "the recording has no report: ",
		"code":    "prism-run: exit status 4",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			s := manualService(t, fault)
			_, err := s.once(t.Context())
			require.NoError(t, err)
			assert.Contains(t, only(t, s).Manual, "recording processes that wait in several containers: "+want)
			assert.NotContains(t, only(t, s).Manual, "\n")
			assert.False(t, only(t, s).Proven.IsZero())
			require.NoError(t, os.Remove(filepath.Join(s.Container, "fault")))
			_, err = s.once(t.Context())
			require.NoError(t, err)
			assert.Empty(t, only(t, s).Manual, "tested again at the next start")
		})
	}
}

// TestProveManual_NoMounts_OneNamespace: where AppArmor denies mounts, only a failure of the version itself is one.
func TestProveManual_NoMounts_OneNamespace(t *testing.T) {
	t.Parallel()
	for fault, want := range map[string]string{"": "", "refuses": "Start ended with Failed: Configuring is not allowed"} {
		s := manualService(t, fault)
		self := filepath.Join(t.TempDir(), "self")
		require.NoError(t, writeProgram(self, []byte("#!/bin/sh\n[ \"$1\" != "+ContainCommand+" ] || exit 1\nexec "+s.Self+" \"$@\"\n")))
		require.NoError(t, os.Chmod(filepath.Dir(self), 0o755))
		require.NoError(t, os.Chmod(filepath.Dir(filepath.Dir(self)), 0o755))
		s.Self = self
		_, err := s.once(t.Context())
		require.NoError(t, err)
		assert.Contains(t, only(t, s).Manual, want)
		assert.Equal(t, want == "", only(t, s).Manual == "")
		assert.NotContains(t, strings.Fields(read(t, s, "processes")), "1")
	}
}

// TestProveManual_Interrupted_NothingWritten: an interrupted test says nothing about a version.
func TestProveManual_Interrupted_NothingWritten(t *testing.T) {
	t.Parallel()
	s := manualService(t, "hangs")
	pipe := filepath.Join(s.Container, "hangs")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		_, err := os.ReadFile(pipe)
		assert.NoError(t, err)
		stop()
	}()
	_, err := s.once(ctx)
	require.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, only(t, s).Manual)
	assert.True(t, only(t, s).Proven.IsZero())
}

// TestInstall_EarlierManifest_ListsOfThisVersion: an earlier version of this program asked for the help of nsys profile alone. The version
// stays proven until its next test.
func TestInstall_EarlierManifest_ListsOfThisVersion(t *testing.T) {
	t.Parallel()
	s := manualService(t, "")
	installed, err := s.once(t.Context())
	require.NoError(t, err)
	earlier := installed
	earlier.Launch, earlier.Start = nil, nil
	require.NoError(t, earlier.Write(earlier.Dir))
	again, err := s.Install(t.Context(), s.Tools)
	require.NoError(t, err)
	assert.Equal(t, installed.Launch, again.Launch)
	assert.Equal(t, installed.Start, again.Start)
	assert.Equal(t, installed.Proven, again.Proven)
	_, err = s.once(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"--trace", "--trace=osrt", "--wait"}, only(t, s).Launch)
	assert.Equal(t, []string{"--sample"}, only(t, s).Start)
}

// TestInstall_NoHelpOfLaunch_SaidAndNotTested: such a version still records processes from their start.
func TestInstall_NoHelpOfLaunch_SaidAndNotTested(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		"launch": "nsys launch --help lists no switches", "start": "nsys start --help lists no switches",
	} {
		s := manualService(t, "")
		nsys := filepath.Join(s.Path, "target-linux-x64/nsys")
		raw, err := os.ReadFile(nsys)
		require.NoError(t, err)
		require.NoError(t, writeProgram(nsys, []byte(strings.Replace(string(raw), `"`+command+` --help")`, `"none --help")`, 1))))
		_, err = s.once(t.Context())
		require.NoError(t, err)
		assert.Contains(t, only(t, s).Manual, want)
		assert.NoFileExists(t, filepath.Join(s.Container, "processes"))
	}
}
