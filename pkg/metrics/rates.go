package metrics

import "time"

// SetRates sets the rates that GPM has from Hopper on to what the counters grew by since the round before, where GPM has not set them. A
// counter that began again has no rate.
func (v *Values) SetRates(before *Values, elapsed time.Duration) {
	if before == nil || elapsed <= 0 {
		return
	}
	for _, r := range [...]struct{ rate, counter Field }{
		{FieldNVLinkTransmitRate, FieldNVLinkTransmitted}, {FieldNVLinkReceiveRate, FieldNVLinkReceived},
		{FieldNVLink0TransmitRate, FieldNVLink0Transmitted}, {FieldNVLink0ReceiveRate, FieldNVLink0Received},
	} {
		was, known := before.Get(r.counter)
		now, there := v.Get(r.counter)
		if _, set := v.Get(r.rate); !set && known && there && now >= was {
			v.Set(r.rate, (now-was)/elapsed.Seconds())
		}
	}
}
