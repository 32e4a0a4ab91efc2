# longdoc-bench in a container.
#   docker build -t longdoc-bench .                                             processor
#   docker build -t longdoc-bench --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 .      CUDA
#   docker run --rm -v "$PWD/results:/work/results" longdoc-bench table table1
#   docker run --rm --gpus all -v ...   with CUDA; models of the hub: -v ~/.cache/huggingface:/root/.cache/huggingface
FROM python:3.11-slim

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN apt-get update && apt-get install -y --no-install-recommends g++ git && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY constraints.txt ./
RUN pip install --no-cache-dir "$(grep '^torch==' constraints.txt)" --index-url "$TORCH_INDEX"
COPY . .
RUN pip install --no-cache-dir -c constraints.txt '.[all]'
WORKDIR /work
ENTRYPOINT ["bench"]
CMD ["--help"]
