package parts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// firstBuilds are about how long the parts take on two processors in the order of Ensure, after the tools and with empty caches otherwise.
var firstBuilds = map[string]time.Duration{
	"nvidia-cdi-hook": 10 * time.Second, "cni": 3 * time.Second, "runc": 7 * time.Second, "etcd": 17 * time.Second, "containerd": 34 * time.Second,
	"helm": 35 * time.Second, "kubernetes": 175 * time.Second, "prometheus": 60 * time.Second,
	"nvidia-cdi-hook-1.17": 10 * time.Second, "nvidia-ctk-1.15": 10 * time.Second,
}

// lastBuild returns how long the last build of the part took on this machine, of any version, or else the duration that was measured on another machine.
func (c Cache) lastBuild(r Recipe) (took time.Duration, here bool) {
	text, err := os.ReadFile(c.durationFile(r))
	if err == nil {
		if took, err = time.ParseDuration(strings.TrimSpace(string(text))); err == nil && took > 0 {
			return took, true
		}
	}
	return firstBuilds[r.Name], false
}

// recordBuild is for people only: what cannot be written is not missed.
func (c Cache) recordBuild(r Recipe, took time.Duration) {
	if err := os.MkdirAll(filepath.Dir(c.durationFile(r)), 0o755); err != nil {
		return
	}
	_ = os.WriteFile(c.durationFile(r), []byte(took.Round(time.Second/10).String()+"\n"), 0o644)
}

func (c Cache) durationFile(r Recipe) string { return filepath.Join(c.Dir, "durations", r.Name) }

// expect says how long the build of the recipes is going to take.
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

// human rounds to what a person wants to know.
func human(d time.Duration) string {
	if d < 100*time.Second {
		return fmt.Sprintf("%.0f s", max(d.Seconds(), 1))
	}
	return fmt.Sprintf("%.0f min", d.Minutes())
}
