package download_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/cli/download"
)

func named(id, file string) v1alpha1.Report {
	return v1alpha1.Report{ObjectMeta: metav1.ObjectMeta{Name: id}, Status: v1alpha1.ReportStatus{State: "Ready", File: file}}
}

// TestNames_HostileContainers_StayInTheFolder: file names come from containers.
func TestNames_HostileContainers_StayInTheFolder(t *testing.T) {
	for file, want := range map[string]string{
		"train.nsys-rep":                   "train.nsys-rep",
		"train":                            "train.nsys-rep",
		"train.qdstrm":                     "train.qdstrm",
		"../../etc/cron.d/x.nsys-rep":      "etc_cron.d_x.nsys-rep",
		"/etc/passwd":                      "etc_passwd.nsys-rep",
		`..\..\boot.ini`:                   "boot.ini.nsys-rep",
		"..":                               "id-1.nsys-rep",
		".":                                "id-1.nsys-rep",
		"":                                 "id-1.nsys-rep",
		".bashrc":                          "bashrc.nsys-rep",
		"-rf.nsys-rep":                     "rf.nsys-rep",
		"a\x1b]0;x\a\n\r\x00b":             "a__0_x____b.nsys-rep",
		"a\u202e.exe":                      "a_.exe.nsys-rep",
		"train.sh":                         "train.sh.nsys-rep",
		"x.nsys-rep/../y.nsys-rep":         "x.nsys-rep_.._y.nsys-rep",
		"C:evil":                           "C_evil.nsys-rep",
		"\xff\xfe":                         "id-1.nsys-rep",
		strings.Repeat("a", 1000):          strings.Repeat("a", 191) + ".nsys-rep",
		"a b$(touch x);'\"*?<>|&.nsys-rep": "a_b__touch_x__________.nsys-rep",
	} {
		got := download.Names([]v1alpha1.Report{named("id-1", file)})[0]
		assert.Equal(t, want, got, "%q", file)
		assert.True(t, filepath.IsLocal(got) && filepath.Base(got) == got, got)
	}
	raw := named("id-1", "x")
	raw.Status.State = "Raw"
	assert.Equal(t, []string{"x.qdstrm"}, download.Names([]v1alpha1.Report{raw}))
	inContainer := named("id-1", "")
	inContainer.Status.Path = "/out/../my.nsys-rep"
	assert.Equal(t, []string{"my.nsys-rep"}, download.Names([]v1alpha1.Report{inContainer}))
}

func TestNames_SameFileName_EachItsOwn(t *testing.T) {
	long := strings.Repeat("a", 300)
	names := download.Names([]v1alpha1.Report{
		named("id-1", "x.nsys-rep"), named("id-2", "X.nsys-rep"), named("id-3", "y"), named("id-4", "x-id-1.nsys-rep"),
		named("id-5", long), named("id-6", long+"b"),
	})
	assert.Equal(t, []string{"id-1.nsys-rep", "X-id-2.nsys-rep", "y.nsys-rep", "id-4.nsys-rep"}, names[:4])
	assert.NotEqual(t, names[4], names[5])
	assert.LessOrEqual(t, len(names[5]), 200)
}

func FuzzNames(f *testing.F) {
	f.Add("../x", "..", "a/b")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		seen := map[string]bool{}
		for _, name := range download.Names([]v1alpha1.Report{named("id-1", a), named("id-2", b), named("id-3", c)}) {
			if !filepath.IsLocal(name) || filepath.Base(name) != name || len(name) > 200 || strings.HasPrefix(name, ".") || seen[strings.ToLower(name)] {
				t.Fatalf("%q of %q %q %q", name, a, b, c)
			}
			seen[strings.ToLower(name)] = true
		}
	})
}
