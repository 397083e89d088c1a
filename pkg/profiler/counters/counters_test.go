package counters

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const uid = "0aaaaaaa-0000-4000-8000-000000000000"

// full returns an order with every field.
func full() Order {
	return Order{
		Claim: uid, Namespace: "ns", Name: "claim", Node: "node-a", GPUs: []GPU{{"GPU-" + uid, "0000:65:00.0"}, {"GPU-" + uid, "00010000:65:00.7"}},
		FrequencyHz: 10000, MetricSet: "tu10x-gfxt", Manual: true, Seconds: 60, File: "{PROCESS_NAME}", StartSeconds: 1, ReportSeconds: 2,
	}
}

func TestOrder_RoundTrip_Same(t *testing.T) {
	t.Parallel()
	want := full()
	raw, err := want.Encode()
	require.NoError(t, err)
	got, err := ParseOrder(raw)
	require.NoError(t, err)
	assert.Equal(t, &want, got)
	got, err = ParseOrder(bytes.Replace(raw, []byte(`{"claim"`), []byte(`{"later":[1],"claim"`), 1))
	require.NoError(t, err, "of a later version")
	assert.Equal(t, &want, got)
}

// TestOrder_Most_FitsIntoFile: what can be ordered can be read.
func TestOrder_Most_FitsIntoFile(t *testing.T) {
	t.Parallel()
	o := full()
	o.GPUs = nil
	for range maxGPUs {
		o.GPUs = append(o.GPUs, GPU{"GPU-" + uid, "00010000:65:00.7"})
	}
	o.Namespace, o.Name, o.Node = strings.Repeat("n", 63), strings.Repeat("n", 253), strings.Repeat("n", 253)
	raw, err := o.Encode()
	require.NoError(t, err)
	_, err = ParseOrder(raw)
	require.NoError(t, err)
}

func TestOrder_Invalid_Refused(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(o *Order){
		`claim must be a UID, got "../../x"`:                    func(o *Order) { o.Claim = "../../x" },
		`claim must be a UID, got ""`:                           func(o *Order) { o.Claim = "" },
		`gpus must have 1 to 64 items, got 0`:                   func(o *Order) { o.GPUs = nil },
		`gpus must have 1 to 64 items, got 65`:                  func(o *Order) { o.GPUs = make([]GPU, maxGPUs+1) },
		`frequencyHz must be from 10 to 200000, got 9`:          func(o *Order) { o.FrequencyHz = minHz - 1 },
		`frequencyHz must be from 10 to 200000, got 200001`:     func(o *Order) { o.FrequencyHz = maxHz + 1 },
		`metricSet must be an alias, got "file:/etc/passwd"`:    func(o *Order) { o.MetricSet = "file:/etc/passwd" },
		`metricSet must be an alias, got "-x"`:                  func(o *Order) { o.MetricSet = "-x" },
		`seconds must be from 1 to 86400, got 0`:                func(o *Order) { o.Seconds = 0 },
		`seconds must be from 1 to 86400, got 86401`:            func(o *Order) { o.Seconds = maxSeconds + 1 },
		`file must be set`:                                      func(o *Order) { o.File = "" },
		`gpus must have a UUID and a PCI address, got "MIG-1" `: func(o *Order) { o.GPUs[1].UUID = "MIG-1" },
		`GPU-` + uid + `" and "all"`:                            func(o *Order) { o.GPUs[1].PCIAddress = "all" },
	} {
		o := full()
		change(&o)
		_, err := o.Encode()
		require.ErrorContains(t, err, "encoding the order of claim ns/claim: ")
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, o.Validate(), want)
	}
	raw, err := new(full()).Encode()
	require.NoError(t, err)
	for text, want := range map[string]string{
		"": "EOF", "{}": "claim must be a UID", string(raw) + "x": "more after the value", string(raw[:len(raw)-1]): "unexpected EOF",
		string(raw) + strings.Repeat(" ", MaxFile):              fmt.Sprintf("must be at most %d bytes, got ", MaxFile),
		strings.Replace(string(raw), "65:00.0", "65:00.0,1", 1): "gpus must have a UUID and a PCI address",
	} {
		_, err := ParseOrder([]byte(text))
		require.ErrorContains(t, err, want, text)
		require.ErrorContains(t, err, "reading an order: ")
	}
}

func TestState_RoundTrip_Same(t *testing.T) {
	t.Parallel()
	available := map[Reason]bool{Waiting: true, Recording: true, Ended: true}
	for reason := range reasons {
		want := State{Reason: reason, Message: "said \x00\"", Since: time.Unix(1, 2).UTC()}
		raw, err := want.Encode()
		require.NoError(t, err)
		got, ok := ParseState(raw)
		assert.True(t, ok)
		assert.Equal(t, want, got)
		assert.Equal(t, available[reason], reason.Available(), reason)
	}
	for _, raw := range []string{"", "{}", `{"reason":"Other"}`, `{"reason":"Failed"}{}`, `{"reason":"Failed","since":"x"}`, `{"reason":"Failed"}` + strings.Repeat(" ", MaxFile)} {
		_, ok := ParseState([]byte(raw))
		assert.False(t, ok, raw)
	}
}

func TestBusy_RoundTrip_ValidUUIDs(t *testing.T) {
	t.Parallel()
	raw, err := Busy{GPUs: []string{"GPU-" + uid, "MIG-" + uid, "../x"}}.Encode()
	require.NoError(t, err)
	assert.Equal(t, []string{"GPU-" + uid}, ParseBusy(raw))
	raw, err = Busy{GPUs: strings.Split(strings.Repeat("GPU-"+uid+" ", 2*maxGPUs), " ")}.Encode()
	require.NoError(t, err)
	assert.Len(t, ParseBusy(raw), maxGPUs)
	assert.Empty(t, ParseBusy([]byte("{")))
}

// FuzzParseOrder: an order that is read is valid, and is written again as the same.
func FuzzParseOrder(f *testing.F) {
	raw, err := new(full()).Encode()
	require.NoError(f, err)
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, err := ParseOrder(raw)
		if err != nil {
			assert.Nil(t, o)
			return
		}
		assert.LessOrEqual(t, len(raw), MaxFile)
		require.NoError(t, o.Validate())
		again, err := o.Encode()
		require.NoError(t, err)
		if len(again) > MaxFile {
			return // escapes are longer than the characters
		}
		same, err := ParseOrder(again)
		require.NoError(t, err)
		assert.Equal(t, o, same)
	})
}

// FuzzParseState: a state that is read has a known reason; the file of busy GPUs has valid UUIDs.
func FuzzParseState(f *testing.F) {
	raw, err := State{Reason: Failed, Message: "said", Since: time.Unix(1, 2).UTC()}.Encode()
	require.NoError(f, err)
	f.Add(raw)
	raw, err = Busy{GPUs: []string{"GPU-" + uid}}.Encode()
	require.NoError(f, err)
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		if s, ok := ParseState(raw); ok {
			assert.True(t, reasons[s.Reason])
		}
		for _, uuid := range ParseBusy(raw) {
			assert.Regexp(t, uuidForm, uuid)
		}
	})
}
