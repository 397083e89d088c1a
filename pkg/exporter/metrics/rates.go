package metrics

import "time"

// SetRates calculates the rates that GPM provides from Hopper on from the growth of the counters since the previous round, if GPM has not
// set them. A counter that restarted yields no rate.
func (v *Values) SetRates(before *Values, elapsed time.Duration) {
	if before == nil || elapsed <= 0 {
		return
	}
	for _, r := range rates {
		was, known := before.Get(r.counter)
		now, there := v.Get(r.counter)
		if _, set := v.Get(r.rate); !set && known && there && now >= was {
			v.Set(r.rate, (now-was)/elapsed.Seconds())
		}
	}
}

type rate struct{ rate, counter Field }

// rates are the fields that are the growth of a counter.
var rates = func() []rate {
	list := []rate{{FieldNVLinkTransmitRate, FieldNVLinkTransmitted}, {FieldNVLinkReceiveRate, FieldNVLinkReceived}}
	for link := range NVLinks {
		list = append(list, rate{FieldNVLink0TransmitRate.OfNVLink(link), FieldNVLink0Transmitted.OfNVLink(link)},
			rate{FieldNVLink0ReceiveRate.OfNVLink(link), FieldNVLink0Received.OfNVLink(link)})
	}
	return list
}()
