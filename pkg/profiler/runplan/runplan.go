// Package runplan encodes the file of a claim for prism-run, which configures how its processes are profiled. It is pure.
package runplan

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"
)

// MaxBytes is the maximum size that prism-run reads.
const MaxBytes = 1 << 20

// Results is the mount point of a claim's inbox in its containers.
const Results = "/run/prism/results"

// MaxSessions is the maximum number of processes of a container that are profiled at once, and its number of slots.
const MaxSessions = 16

// Plan configures how the processes of a claim are profiled.
type Plan struct {
	// Claim is the UID of the claim; Namespace, ClaimName and Node are names.
	Claim, Namespace, ClaimName, Node string
	// GPU is the value of {GPU_UUID}.
	GPU string
	// Tool is the path of nsys in the container, Switches are the arguments after "profile", without -o and the program.
	Tool     string
	Switches []string
	// Manual makes a process wait until commands record it; see package session. Switches are then the arguments after "launch", without
	// the session and the program, and StartSwitches those after "start", without the session and -o.
	Manual        bool
	StartSwitches []string
	// Env is the environment of nsys itself in addition to the variables of every session: "NAME=value".
	Env []string
	// File is the template of a report's name, Dir the template of the folder in the container; empty: Results, and prism-run names the
	// file.
	File, Dir string
	// MaxSessions is the number of processes of a container that are profiled at once; 0 is 1.
	MaxSessions int
	// ExecSessions also profiles processes of kubectl exec; FailClosed fails a process whose profiler does not start.
	ExecSessions, FailClosed bool
	// Ready is the timeout for nsys to start, Report to write its report, Term to write it after SIGTERM, and Stop the time that recording
	// continues after SIGTERM. They are whole seconds; zero is the default.
	Ready, Report, Term, Stop time.Duration
}

// defaults sets zero fields.
func (p Plan) defaults() Plan {
	for _, field := range []struct {
		value *time.Duration
		def   time.Duration
	}{{&p.Ready, 10 * time.Second}, {&p.Report, 60 * time.Second}, {&p.Term, 20 * time.Second}, {&p.Stop, 5 * time.Second}} {
		if *field.value == 0 {
			*field.value = field.def
		}
	}
	if p.Dir == "" {
		p.Dir = Results
	}
	p.MaxSessions = max(p.MaxSessions, 1)
	return p
}

// Encode returns the file for prism-run: "key=value" strings, each followed by a null; a repeated key is a list.
func (p Plan) Encode() ([]byte, error) {
	p = p.defaults()
	if err := p.validate(); err != nil {
		return nil, fmt.Errorf("encoding the plan of claim %s: %w", p.Claim, err)
	}
	var e encoder
	e.add("version", "1")
	e.add("claim", p.Claim)
	e.add("namespace", p.Namespace)
	e.add("claimName", p.ClaimName)
	e.add("node", p.Node)
	e.add("gpu", p.GPU)
	e.add("tool", p.Tool)
	e.add("switch", p.Switches...)
	if p.Manual {
		e.add("manual", digit(p.Manual))
	}
	e.add("startSwitch", p.StartSwitches...)
	e.add("env", p.Env...)
	if p.File != "" {
		e.add("file", p.File)
	}
	e.add("dir", p.Dir)
	e.add("maxSessions", strconv.Itoa(p.MaxSessions))
	e.add("execSessions", digit(p.ExecSessions))
	e.add("failClosed", digit(p.FailClosed))
	e.add("readySeconds", seconds(p.Ready))
	e.add("reportSeconds", seconds(p.Report))
	e.add("termSeconds", seconds(p.Term))
	e.add("stopSeconds", seconds(p.Stop))
	if e.null != "" {
		return nil, fmt.Errorf("encoding the plan of claim %s: %s contains a null byte", p.Claim, e.null)
	}
	if e.text.Len() > MaxBytes {
		return nil, fmt.Errorf("encoding the plan of claim %s: must be at most %d bytes, got %d", p.Claim, MaxBytes, e.text.Len())
	}
	return e.text.Bytes(), nil
}

func (p Plan) validate() (err error) {
	for _, c := range []struct{ name, path string }{{"tool", p.Tool}, {"dir", p.Dir}} {
		if !path.IsAbs(c.path) || path.Clean(c.path) != c.path {
			err = errors.Join(err, fmt.Errorf("%s must be an absolute path without \"..\", got %q", c.name, c.path))
		}
	}
	if p.MaxSessions > MaxSessions {
		err = errors.Join(err, fmt.Errorf("maxSessions must be less than or equal to %d, got %d", MaxSessions, p.MaxSessions))
	}
	if len(p.StartSwitches) > 0 && !p.Manual {
		err = errors.Join(err, errors.New("startSwitches require manual"))
	}
	for _, variable := range p.Env {
		if name, _, ok := strings.Cut(variable, "="); !ok || name == "" {
			err = errors.Join(err, fmt.Errorf("env must be NAME=value, got %q", variable))
		}
	}
	for _, d := range []time.Duration{p.Ready, p.Report, p.Term, p.Stop} {
		if d < 0 || d > 24*time.Hour || d%time.Second != 0 {
			err = errors.Join(err, fmt.Errorf("deadlines must be whole seconds up to 24h, got %v", d))
		}
	}
	return err
}

// encoder writes the strings, and stores the first key with a null.
type encoder struct {
	text bytes.Buffer
	null string
}

func (e *encoder) add(key string, values ...string) {
	for _, value := range values {
		if e.null == "" && strings.ContainsRune(value, 0) {
			e.null = key
		}
		e.text.WriteString(key + "=" + value + "\x00")
	}
}

func digit(is bool) string {
	if is {
		return "1"
	}
	return "0"
}

func seconds(d time.Duration) string {
	return strconv.FormatInt(int64(d/time.Second), 10)
}
