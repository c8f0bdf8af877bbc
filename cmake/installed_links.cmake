# Run when the documents have been installed into FOLDER: links to what stays in the sources say so.
# tests/install/install.sh looks at every link that is left.
file(GLOB documents ${FOLDER}/README.md ${FOLDER}/docs/*.md)
foreach(document ${documents})
  file(READ ${document} text)
  string(REGEX REPLACE
    "\\[([^]]*)\\]\\((\\.\\./)?(ARCHITECTURE|CONTRIBUTING|bench|bindings|core|include|scripts)[^)]*\\)"
    "\\1 (in the sources)" text "${text}")
  file(WRITE ${document} "${text}")
endforeach()
