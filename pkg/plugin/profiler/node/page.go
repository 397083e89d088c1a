package node

import (
	"net/http"
	"slices"
	"strconv"
)

// page is the part of a list that a controller requests: the items of a namespace with an id, or after a key, up to a limit. Empty fields do
// not restrict it.
type page struct {
	namespace, namespaceUID string
	id, after               string
	limit                   int
}

func parsePage(r *http.Request) page {
	query := r.URL.Query()
	p := page{namespace: query.Get("namespace"), namespaceUID: query.Get("namespaceUID"), id: query.Get("id"), after: query.Get("after")}
	if limit, err := strconv.Atoi(query.Get("limit")); err == nil && limit > 0 {
		p.limit = limit
	}
	return p
}

// listed is an item of a list.
type listed[T any] interface {
	Key() string
	Compare(other T) int
}

// pageOf returns the items of a page in the order of their keys.
func pageOf[T listed[T]](p page, all []T, id func(T) string) []T {
	all = slices.DeleteFunc(all, func(one T) bool { return p.id != "" && id(one) != p.id || p.after != "" && one.Key() <= p.after })
	slices.SortFunc(all, T.Compare)
	if p.limit > 0 {
		all = all[:min(p.limit, len(all))]
	}
	return all
}
