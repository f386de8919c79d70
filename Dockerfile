# The image is the tree that .ci/image has built, tried and measured; nothing is built or run here.
FROM scratch
ARG TARGETARCH
ARG VERSION=0.0.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="concertina" \
      org.opencontainers.image.description="A drop-in replacement for Kubernetes' HorizontalPodAutoscaler controller" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY target/image/${TARGETARCH}/rootfs/ /
USER 65532:65532
ENTRYPOINT ["/concertina"]
