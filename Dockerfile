# One image for migrate, api, worker and beat: which program runs is the command's business.
#
# BASE_IMAGE  Debian or Ubuntu with python3 >= 3.11 and its venv module; any mirror or an image
#             that you made yourself will do.
# EXTRAS      optional parts of pyproject.toml, separated by commas: `aws` and `gcp` bring the
#             client libraries of the clouds that the worker rents from; `trainer` (PyTorch) is
#             for a worker that runs the bundled trainer on machines of the local cloud: those
#             are processes inside the worker's container.
#
# Packages come from the index that pip is set to, or from deploy/wheelhouse alone when that folder
# holds wheels (docs/deployment.md, "Without a package index").
ARG BASE_IMAGE=python:3.11.14-slim-bookworm

FROM ${BASE_IMAGE} AS builder
ARG EXTRAS=""
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1
WORKDIR /source
RUN python3 -m venv /opt/lowtide
# First what changes seldom, so that an edit of the source installs nothing anew.
# Every file is checked by its SHA-256, but torch's (deploy/lock.py says why).
COPY deploy/requirements.py pyproject.toml constraints.txt requirements.lock ./
COPY deploy/wheelhouse/ /wheelhouse/
RUN python=/opt/lowtide/bin/python \
    && $python requirements.py --without-servers "${EXTRAS}" > requirements.txt \
    && $python requirements.py --unhashed "${EXTRAS}" > unhashed.txt \
    && if ls /wheelhouse/*.whl >/dev/null 2>&1; then \
        export PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheelhouse; fi \
    && $python -m pip install --require-hashes --no-deps -r requirements.txt \
    && if grep -q . unhashed.txt; then \
        $python -m pip install -c constraints.txt -r unhashed.txt; fi
COPY LICENSE README.md ./
COPY app/ app/
COPY workers/ workers/
COPY trainer/ trainer/
COPY migrations/ migrations/
# A link in app/ leads to it: the example of `lowtide init`.
COPY docs/examples/plain_loop/train.py docs/examples/plain_loop/
RUN /opt/lowtide/bin/pip install --no-index --no-deps --no-build-isolation . \
    && /opt/lowtide/bin/pip uninstall --yes pip setuptools

FROM ${BASE_IMAGE}
RUN groupadd --gid 10001 lowtide \
    && useradd --uid 10001 --gid lowtide --no-create-home --home-dir /var/lib/lowtide \
        --shell /usr/sbin/nologin lowtide \
    && install -d -o lowtide -g lowtide -m 0700 /var/lib/lowtide
COPY --from=builder /opt/lowtide /opt/lowtide
COPY deploy/health.py /opt/lowtide/health.py
ENV PATH=/opt/lowtide/bin:$PATH \
    LOWTIDE_STATE_DIR=/var/lib/lowtide \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 MALLOC_ARENA_MAX=1
WORKDIR /var/lib/lowtide
VOLUME /var/lib/lowtide
USER 10001:10001
CMD ["lowtide", "--help"]
