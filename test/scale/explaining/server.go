package explaining

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"google.golang.org/protobuf/encoding/protowire"
)

// Server answers like the API server of a large cluster, in protobuf. It keeps objects encoded.
type Server struct {
	lists map[string][]item

	mu     sync.Mutex
	counts Counts
}

// item is an encoded object.
type item struct {
	name string
	data []byte
}

// Counts count the requests.
type Counts struct {
	// Lists is the number of requests of pages, Writes of requests that are not GET.
	Lists, Writes int
	// Pages is the number of pages that all lists have.
	Pages int
}

// NewServer returns the server of a cluster of this many nodes, of whose GPUs the part full is in use.
func NewServer(ctx context.Context, nodes int, full float64) (*Server, error) {
	s := &Server{lists: map[string][]item{"deviceclasses": nil, "devicetaintrules": nil}}
	var failed error
	c := &world{random: rand.New(rand.NewPCG(38, uint64(nodes))), full: full, emit: func(o object) {
		data, err := o.Marshal()
		if err != nil {
			failed = err
		}
		list := resourceOf(o)
		s.lists[list] = append(s.lists[list], item{o.GetNamespace() + "/" + o.GetName(), data})
	}}
	if err := c.make(ctx, nodes); err != nil {
		return nil, err
	}
	for _, list := range s.lists { // as etcd does
		sort.Slice(list, func(i, j int) bool { return list[i].name < list[j].name })
	}
	s.lists["deviceclasses"] = unique(s.lists["deviceclasses"])
	for _, list := range s.lists {
		s.counts.Pages += max(1, (len(list)+499)/500)
	}
	return s, failed
}

// unique drops objects with the name of the one before.
func unique(list []item) (kept []item) {
	for i := range list {
		if i == 0 || list[i].name != list[i-1].name {
			kept = append(kept, list[i])
		}
	}
	return kept
}

func resourceOf(o object) string {
	switch o.(type) {
	case *resourceapi.ResourceSlice:
		return "resourceslices"
	case *resourceapi.ResourceClaim:
		return "resourceclaims"
	case *resourceapi.DeviceClass:
		return "deviceclasses"
	case *corev1.Node:
		return "nodes"
	default:
		return "pods"
	}
}

// Counts returns the numbers of requests so far.
func (s *Server) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// ServeHTTP answers a LIST.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	list, found := s.lists[r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]]
	s.mu.Lock()
	if r.Method != http.MethodGet {
		s.counts.Writes++
	}
	if found {
		s.counts.Lists++
	}
	s.mu.Unlock()
	if r.URL.Path == "/version" {
		_, _ = w.Write([]byte(`{"major":"1","minor":"37"}`))
		return
	}
	if !found {
		http.NotFound(w, r)
		return
	}
	first, _ := strconv.Atoi(r.URL.Query().Get("continue")) // "" begins
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
	_, _ = w.Write(page(list, first, limit)) // the client has gone
}

// page encodes a page.
func page(list []item, first, limit int) []byte {
	last := len(list)
	meta := metav1.ListMeta{ResourceVersion: "7"}
	if limit > 0 && first+limit < last {
		last = first + limit
		meta.Continue = fmt.Sprint(last)
	}
	encoded, _ := meta.Marshal() // of an object in memory
	body := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), encoded)
	for _, item := range list[first:last] {
		body = protowire.AppendBytes(protowire.AppendTag(body, 2, protowire.BytesType), item.data)
	}
	return append([]byte("k8s\x00"), protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), body)...)
}
