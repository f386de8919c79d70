# docker build .                             builds the program here, for the processor of this machine
# docker build --build-arg TREE=release .    copies the tree that .ci/image has built and tested, as for a release
# docker build --build-arg FEATURES=mimalloc,tools .   includes `concertina why` and the other tools, for debugging and CI
#
# Needs BuildKit, which builds only the stage that TREE names.
ARG TREE=sources

FROM rust:1.95.0-alpine AS build
RUN apk add --no-cache ca-certificates gcc musl-dev
WORKDIR /source
COPY . .
# Uses the toolchain of this stage, instead of the one that rust-toolchain.toml would install with its components. A build
# for musl is static. The profile `image` adds full link-time optimisation to `release`.
ENV RUSTUP_TOOLCHAIN=1.95.0
ARG FEATURES=mimalloc
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/source/target \
    cargo build --locked --profile image --package concertina --no-default-features --features "$FEATURES" && \
    mkdir -p /rootfs/etc/ssl/certs /rootfs/licenses && \
    install -m 0555 target/image/concertina /rootfs/concertina && \
    install -m 0444 /etc/ssl/certs/ca-certificates.crt /rootfs/etc/ssl/certs/ca-certificates.crt && \
    install -m 0444 LICENSE /rootfs/licenses/LICENSE && \
    printf 'nonroot:x:65532:65532:nonroot:/:/concertina\n' >/rootfs/etc/passwd && \
    printf 'nonroot:x:65532:\n' >/rootfs/etc/group && \
    /rootfs/concertina --version

FROM scratch AS sources
COPY --from=build /rootfs/ /

FROM scratch AS release
ARG TARGETARCH
COPY target/image/${TARGETARCH}/rootfs/ /

FROM ${TREE}
ARG VERSION=0.0.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="concertina" \
      org.opencontainers.image.description="A drop-in replacement for Kubernetes' HorizontalPodAutoscaler controller" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
USER 65532:65532
ENTRYPOINT ["/concertina"]
