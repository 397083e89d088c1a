package parts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// firstBuilds are approximate durations of builds on two processors in the order of Ensure, after the tools and with otherwise empty
// caches.
var firstBuilds = map[string]time.Duration{
	"nvidia-cdi-hook": 10 * time.Second, "cni": 3 * time.Second, "runc": 7 * time.Second, "etcd": 17 * time.Second, "containerd": 34 * time.Second,
	"helm": 35 * time.Second, "kubernetes": 175 * time.Second, "prometheus": 60 * time.Second,
	"nvidia-cdi-hook-1.17": 10 * time.Second, "nvidia-ctk-1.15": 10 * time.Second,
}

// lastBuild returns the duration of the last build of the part on this machine, of any version, otherwise the duration on another machine.
func (c Cache) lastBuild(r Recipe) (took time.Duration, here bool) {
	text, err := os.ReadFile(c.durationFile(r))
	if err == nil {
		if took, err = time.ParseDuration(strings.TrimSpace(string(text))); err == nil && took > 0 {
			return took, true
		}
	}
	return firstBuilds[r.Name], false
}

// recordBuild is only for people, so errors are ignored.
func (c Cache) recordBuild(r Recipe, took time.Duration) {
	if err := os.MkdirAll(filepath.Dir(c.durationFile(r)), 0o755); err != nil {
		return
	}
	_ = os.WriteFile(c.durationFile(r), []byte(took.Round(time.Second/10).String()+"\n"), 0o644)
}

func (c Cache) durationFile(r Recipe) string { return filepath.Join(c.Dir, "durations", r.Name) }

// expect estimates the duration of the build of the recipes.
func (c Cache) expect(recipes ...Recipe) string {
	var sum time.Duration
	all := true
	for _, r := range recipes {
		took, here := c.lastBuild(r)
		sum, all = sum+took, all && here
	}
	if all {
		return human(sum) + " the last time"
	}
	return "about " + human(sum) + " on two processors"
}

// human rounds a duration for people.
func human(d time.Duration) string {
	if d < 100*time.Second {
		return fmt.Sprintf("%.0f s", max(d.Seconds(), 1))
	}
	return fmt.Sprintf("%.0f min", d.Minutes())
}
