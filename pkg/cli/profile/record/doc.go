// Package record sends commands of a user for sessions and claims, and waits until the sessions have carried them out.
package record
