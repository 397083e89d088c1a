package view

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// pageSize is the number of objects that one request returns at most.
const pageSize = 500

// accepted are the encodings of answers: objects in JSON need several times as long.
const accepted = "application/vnd.kubernetes.protobuf,application/json"

// expiries is how often a list begins again because its pages expired.
const expiries = 3

// listing is a list of objects of a kind.
type listing struct {
	client    rest.Interface
	resource  string
	namespace string
	options   metav1.ListOptions
}

// object is an object of a list, encoded.
type object struct {
	data     []byte
	protobuf bool
}

// message is an object of the API.
type message interface{ Unmarshal([]byte) error }

// decode decodes the object.
func (o object) decode(into message) error {
	if o.protobuf {
		return into.Unmarshal(o.data)
	}
	return json.Unmarshal(o.data, into)
}

// each passes the objects to add, page by page and one at a time, and returns the resource version of the list. begin is called before the
// first page, and again if the pages expired.
func (l listing) each(ctx context.Context, begin func(), add func(object) error) (string, error) {
	for attempt := 1; ; attempt++ {
		begin()
		version, err := l.pages(ctx, add)
		if err == nil || attempt == expiries || !apierrors.IsResourceExpired(err) {
			return version, err
		}
	}
}

func (l listing) pages(ctx context.Context, add func(object) error) (string, error) {
	options := l.options
	options.Limit = pageSize
	for {
		limitMemory()
		body, err := l.request(&options).Stream(ctx)
		if err != nil {
			return "", err
		}
		meta, err := split(body, add)
		_ = body.Close()
		if err != nil {
			return "", fmt.Errorf("reading the answer of the API server: %w", err)
		}
		if options.Continue = meta.Continue; options.Continue == "" {
			return meta.ResourceVersion, nil
		}
	}
}

func (l listing) request(options *metav1.ListOptions) *rest.Request {
	return l.client.Get().NamespaceIfScoped(l.namespace, l.namespace != "").Resource(l.resource).
		VersionedParams(options, scheme.ParameterCodec).SetHeader("Accept", accepted)
}

// protobufMagic begins answers in protobuf.
var protobufMagic = []byte("k8s\x00")

// buffered is the size of the part of an answer that is read at a time.
const buffered = 64 << 10

// split passes the objects of a list to add while the answer arrives. An object is valid until add returns.
func split(body io.Reader, add func(object) error) (metav1.ListMeta, error) {
	reader := bufio.NewReaderSize(body, buffered)
	if begin, err := reader.Peek(len(protobufMagic)); err == nil && bytes.Equal(begin, protobufMagic) {
		_, _ = reader.Discard(len(protobufMagic)) // they are in the buffer
		return splitProtobuf(reader, add)
	}
	var list struct {
		Metadata metav1.ListMeta   `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
	}
	if err := json.NewDecoder(reader).Decode(&list); err != nil {
		return metav1.ListMeta{}, err
	}
	for _, item := range list.Items {
		if err := add(object{data: item}); err != nil {
			return metav1.ListMeta{}, err
		}
	}
	return list.Metadata, nil
}

// Tags of the fields of runtime.Unknown, the envelope of an answer, and of all lists: the number, and that bytes follow.
const (
	envelopeRaw  = 2<<3 | 2
	listMetadata = 1<<3 | 2
	listItem     = 2<<3 | 2
)

// splitProtobuf reads the envelope.
func splitProtobuf(reader *bufio.Reader, add func(object) error) (meta metav1.ListMeta, err error) {
	for found := false; ; {
		tag, length, _, err := next(reader)
		switch {
		case errors.Is(err, io.EOF) && found:
			return meta, nil
		case err != nil:
			return meta, cut(err)
		case tag == envelopeRaw:
			found, err = true, splitList(reader, length, &meta, add)
		default:
			_, err = reader.Discard(length)
		}
		if err != nil {
			return meta, err
		}
	}
}

// splitList reads a list of this many bytes.
func splitList(reader *bufio.Reader, left int, meta *metav1.ListMeta, add func(object) error) error {
	var data []byte
	for left > 0 {
		tag, length, read, err := next(reader)
		if err != nil {
			return cut(err)
		}
		if left -= read + length; left < 0 {
			return errors.New("an object is longer than its list")
		}
		data = slices.Grow(data[:0], length)[:length]
		if _, err := io.ReadFull(reader, data); err != nil {
			return cut(err)
		}
		switch tag {
		case listMetadata:
			err = meta.Unmarshal(data)
		case listItem:
			err = add(object{data: data, protobuf: true})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// next reads the tag and the length of a field, and returns how many bytes they have. All fields of envelopes and lists have a length.
func next(reader *bufio.Reader) (tag uint64, length, read int, err error) {
	if tag, err = binary.ReadUvarint(reader); err != nil {
		return 0, 0, 0, err
	}
	of, err := binary.ReadUvarint(reader)
	if err != nil {
		return 0, 0, 0, cut(err)
	}
	if tag&7 != 2 || of > math.MaxInt32 {
		return 0, 0, 0, errors.New("invalid protobuf")
	}
	return tag, int(of), protowire.SizeVarint(tag) + protowire.SizeVarint(of), nil
}

// cut turns the end of the answer into an error.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
