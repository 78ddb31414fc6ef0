# SPDX-License-Identifier: Apache-2.0
# Meshloom. Build:  docker build -t meshloom .        (Debian 13: --build-arg BASE=debian:13)
# Demo:   docker run --rm meshloom quickstart --fast
# Daemon: docker run --name meshloom -e RANKS=2 -v "$PWD/data:/data" -v meshloom-state:/state meshloom
#         docker exec -it meshloom meshloom job submit /data/job.yaml --follow
# On an NVIDIA GPU: docker build --build-arg CUDA=ON -t meshloom-cuda . ; docker run --gpus all ... meshloom-cuda
# The daemon listens on the container's loopback: reach it by docker exec or --network host.
ARG BASE=debian:12

FROM ${BASE} AS builder
WORKDIR /source
ARG CUDA=OFF
COPY scripts/setup.sh scripts/cuda_toolkit.sh scripts/common.sh scripts/
RUN if [ "$CUDA" = ON ]; then scripts/setup.sh --cuda; else scripts/setup.sh; fi
COPY . .
ARG RUN_TESTS=false
RUN if [ "$RUN_TESTS" = true ]; then scripts/test.sh --no-setup; fi
RUN cmake --preset release -DMESHLOOM_CUDA="$CUDA" -DMESHLOOM_TESTS=OFF -DMESHLOOM_UNITY=ON \
  && bash -c '. scripts/common.sh && cmake --build build/release --parallel "$(build_jobs)"' \
  && cmake --install build/release --prefix /opt/meshloom --component Runtime --strip \
  && scripts/runtime_packages.sh /opt/meshloom/bin/* > /opt/meshloom/packages.txt
# The plugin finds NVIDIA's libraries beside itself. The runtime is linked into it, and compilers stay behind.
RUN if [ "$CUDA" = ON ]; then \
    find build/cuda-toolkit/nvidia -name 'lib*.so.[0-9]*' ! -name 'libcudart*' ! -name 'libnvvm*' ! -name 'libnvblas*' \
      -exec cp -t /opt/meshloom/lib/meshloom {} +; \
  fi

FROM ${BASE}
COPY --from=builder /opt/meshloom /opt/meshloom
RUN apt-get update \
  && DEBIAN_FRONTEND=noninteractive xargs apt-get install -y --no-install-recommends \
     tini openmpi-bin bible-kjv < /opt/meshloom/packages.txt \
  && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb /usr/share/doc /usr/share/man \
  && useradd --uid 1000 --create-home meshloom \
  && install -d -o meshloom -g meshloom -m 700 /state /data
# Without the ptrace capability Open MPI's single-copy transport floods the log and fails.
ENV PATH=/opt/meshloom/bin:$PATH OMPI_MCA_btl_vader_single_copy_mechanism=none RANKS=1
# What `docker run --gpus` gives a container of the driver; without it they say nothing.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER meshloom
WORKDIR /home/meshloom
VOLUME ["/state", "/data"]
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s CMD ["meshloom", "status"]
ENTRYPOINT ["tini", "--", "/opt/meshloom/share/meshloom/scripts/image/entrypoint.sh"]
