# The image of Prism: the programs and the C library, nothing else. `make image`
# builds the same root filesystem without Docker.
ARG GO_VERSION=1.26

FROM golang:${GO_VERSION}-bookworm AS build
ENV GOFLAGS=-trimpath GOTOOLCHAIN=local
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN deployments/container/programs.sh /programs && deployments/container/rootfs.sh /programs /rootfs

FROM scratch
LABEL org.opencontainers.image.title="prism" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /rootfs /
ENTRYPOINT ["/usr/bin/prism-kubelet-plugin"]
