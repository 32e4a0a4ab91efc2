# longdoc-bench in a container.
#   docker build -t longdoc-bench .                                             processor
#   docker build -t longdoc-bench --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 .      CUDA
#   docker run --rm -v "$PWD/results:/work/results" longdoc-bench table table1
#   docker run --rm --gpus all -v ...   with CUDA; models of the hub: -v ~/.cache/huggingface:/root/.cache/huggingface
# On Linux, --user "$(id -u):$(id -g)" leaves results that are yours; make the folder first.
# bench ui answers on 127.0.0.1 only: run it with --network host, or outside of the container.
FROM python:3.11-slim

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /src
COPY constraints.txt ./
RUN pip install --no-cache-dir "$(grep '^torch==' constraints.txt)" --index-url "$TORCH_INDEX"
COPY . .
RUN pip install --no-cache-dir -c constraints.txt '.[all]'
ENV MPLCONFIGDIR=/tmp/matplotlib
WORKDIR /work
ENTRYPOINT ["bench"]
CMD ["--help"]
