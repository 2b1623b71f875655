"""Tests of Moldau: files mirror the package."""
