// Package sampler keeps what the driver says of each GPU up to date: a worker per GPU, one round per interval.
package sampler
