# SPDX-License-Identifier: Apache-2.0
# Meshloom on CPUs. Build:  docker build -t meshloom .        (Debian 13: --build-arg BASE=debian:13)
# Demo:   docker run --rm meshloom quickstart --fast
# Daemon: docker run --name meshloom -e RANKS=2 -v "$PWD/data:/data" -v meshloom-state:/state meshloom
#         docker exec -it meshloom meshloom job submit /data/job.yaml --follow
# The daemon listens on the container's loopback: reach it by docker exec or --network host.
ARG BASE=debian:12

FROM ${BASE} AS builder
WORKDIR /source
COPY scripts/setup.sh scripts/common.sh scripts/
RUN scripts/setup.sh
COPY . .
ARG RUN_TESTS=false
RUN if [ "$RUN_TESTS" = true ]; then scripts/test.sh --no-setup; fi
RUN cmake --preset release -DMESHLOOM_TESTS=OFF -DMESHLOOM_UNITY=ON \
  && bash -c '. scripts/common.sh && cmake --build build/release --parallel "$(build_jobs)"' \
  && cmake --install build/release --prefix /opt/meshloom --component Runtime --strip \
  && scripts/runtime_packages.sh /opt/meshloom/bin/* > /opt/meshloom/packages.txt

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
USER meshloom
WORKDIR /home/meshloom
VOLUME ["/state", "/data"]
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s CMD ["meshloom", "status"]
ENTRYPOINT ["tini", "--", "/opt/meshloom/share/meshloom/scripts/image/entrypoint.sh"]
