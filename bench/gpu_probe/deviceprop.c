#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>
#define OK(c) do { cudnnStatus_t s = (c); if (s) { printf("FAILED %s: %s\n", #c, cudnnGetErrorString(s)); return 1; } } while (0)
int main(int n, char** a) {
  cudnnHandle_t h; OK(cudnnCreate(&h));
  printf("cudnn %zu\n", cudnnGetVersion());
  cudnnBackendDescriptor_t d; OK(cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d));
  OK(cudnnBackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, &h));
  OK(cudnnBackendFinalize(d));
  int64_t size = 0; OK(cudnnBackendGetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0, &size, NULL));
  char* t = malloc(size + 1); OK(cudnnBackendGetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, size, &size, t));
  FILE* f = fopen(a[1], "w"); fwrite(t, 1, size, f); fclose(f); printf("deviceprop %ld bytes\n", (long)size); return 0;
}
